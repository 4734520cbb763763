"""The queues of a consumer group: offsets, lag and owners."""

from collections.abc import Callable
from urllib.parse import quote

from bolide.console.pages.consumers.offsets import open_queue_reset
from bolide.console.ui import formats
from bolide.console.ui.tables import Action, Column, DataTable, ListRequest, Row
from bolide.console.ui.view import View
from bolide.operations.consumers.listing import GroupQueue, list_queues
from bolide.operations.declaration import Role
from bolide.operations.views import Page

EVERY = 5.0


def build_queues(view: View, group: str, on_change: Callable[[], None]) -> None:
    """The table of queues, with a reset of each."""
    t = view.t

    async def load(request: ListRequest) -> Page[GroupQueue]:
        return await view.run(
            list_queues,
            group=group,
            search=request.search,
            sort=request.sort,
            descending=request.descending,
            page=request.page,
            size=request.size,
        )

    def row(queue: GroupQueue) -> Row:
        owner = t("none") if queue.owner == "" else queue.owner or formats.UNKNOWN
        topic = quote(queue.topic, safe="")
        return {
            "key": f"{queue.topic} {queue.broker} {queue.queue_id}",
            "topic": queue.topic,
            "broker": queue.broker,
            "queue_id": queue.queue_id,
            "queue": f"{queue.topic} · {queue.broker}:{queue.queue_id}",
            "queue_href": f"/topics/{topic}?tab=queues",
            "owner": owner,
            "owner_hint": queue.owner_address or "",
            "end_offset": formats.count(queue.end_offset),
            "committed_offset": formats.count(queue.committed_offset),
            "lag": formats.count(queue.lag),
            "in_flight": formats.count(queue.in_flight),
            "delay": formats.duration(view, queue.delay_seconds),
            "consumed": formats.moment(view, queue.consumed_ms),
        }

    def reset(row: Row) -> None:
        queue = (str(row["topic"]), str(row["broker"]), int(row["queue_id"]))

        def done() -> None:
            table.reload()
            on_change()

        open_queue_reset(view, group, queue, done)

    actions = [Action(name="reset", label=t("Reset this queue"), icon="restore", handler=reset)]
    table = DataTable(
        view,
        [
            Column(name="queue", label=t("Queue"), kind="link", sortable=True),
            Column(name="owner", label=t("Owner"), kind="code", sortable=True),
            Column(
                name="committed_offset", label=t("Consumed up to"), kind="number", sortable=True
            ),
            Column(name="end_offset", label=t("End"), kind="number", sortable=True),
            Column(name="lag", label=t("Backlog"), kind="number", sortable=True),
            Column(name="in_flight", label=t("In flight"), kind="number"),
            Column(name="delay", label=t("Time lag"), kind="number", sortable=True),
            Column(name="consumed", label=t("Last consumed was stored")),
        ],
        load,
        row,
        label=t("Queues"),
        sort="queue",
        search=t("Search by topic or broker"),
        actions=actions if view.may(Role.OPERATOR) else (),
        every=EVERY,
        empty=t("It has no queues yet: no member has consumed anything."),
    )
