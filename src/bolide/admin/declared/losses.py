"""What the deletions of a plan would destroy, read before anybody agrees to it."""

from collections.abc import Mapping

from bolide.admin.client import AdminClient
from bolide.admin.consequences import GroupDeletion, TopicDeletion
from bolide.admin.declared.changes import Action, Plan
from bolide.admin.declared.fields import Kind
from bolide.admin.servers import gather_by_key

Losses = Mapping[tuple[Kind, str], TopicDeletion | GroupDeletion]
"""By kind and name; users and accounts have none."""


async def losses_of(admin: AdminClient, found: Plan) -> Losses:
    """Read what is lost with topics and groups at the brokers that are to lose them.

    Raises:
        BolideError: a broker does not answer, or refuses to tell.
    """
    places: dict[tuple[Kind, str], list[str]] = {}
    for change in found.changes:
        if change.action is Action.DELETE and change.kind in {Kind.TOPICS, Kind.GROUPS}:
            places.setdefault((change.kind, change.name), []).append(change.address)

    async def look(key: tuple[Kind, str]) -> TopicDeletion | GroupDeletion:
        kind, name = key
        if kind is Kind.TOPICS:
            return await admin.consequences.of_deleting_topic_at(name, places[key])
        return await admin.consequences.of_deleting_group(name, places[key])

    return await gather_by_key(places, look)
