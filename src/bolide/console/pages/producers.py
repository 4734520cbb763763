"""The connected producers of all brokers."""

from bolide.console.pages.declaration import Section, page
from bolide.console.ui import formats
from bolide.console.ui.layout import page_header
from bolide.console.ui.tables import Column, DataTable, ListRequest, Row
from bolide.console.ui.view import View
from bolide.operations import producers
from bolide.operations.producers import ProducerRow
from bolide.operations.views import Page

_EVERY = 5.0


@page("/producers", title="Producers", section=Section.MESSAGING, icon="outbox", order=3)
def producers_page(view: View) -> None:
    """One row per group and client."""
    t = view.t
    page_header(view, t("Producers"), subtitle=t("Clients that send, on all brokers"))

    async def load(wanted: ListRequest) -> Page[ProducerRow]:
        return await view.run(
            producers.list_producers,
            search=wanted.search,
            sort=wanted.sort,
            descending=wanted.descending,
            page=wanted.page,
            size=wanted.size,
        )

    def row(each: ProducerRow) -> Row:
        return {
            "key": f"{each.group} {each.client_id}",
            "group": each.group,
            "client_id": each.client_id,
            "address": each.address,
            "language": each.language,
            "version": each.version,
            "brokers": ", ".join(each.brokers),
            "last_seen": formats.ago(view, each.last_seen_ms),
            "last_seen_hint": formats.moment(view, each.last_seen_ms),
        }

    DataTable(
        view,
        [
            Column(name="group", label=t("Producer group"), sortable=True),
            Column(name="client_id", label=t("Client id"), kind="code", sortable=True),
            Column(name="address", label=t("Address"), kind="code", sortable=True),
            Column(name="language", label=t("Language"), sortable=True),
            Column(name="version", label=t("Version"), sortable=True),
            Column(name="brokers", label=t("Brokers")),
            Column(name="last_seen", label=t("Last heartbeat"), sortable=True),
        ],
        load,
        row,
        label=t("Producers"),
        sort="group",
        search=t("Group, client, address or language"),
        every=_EVERY,
        empty=t("No producer is connected."),
        empty_hint=t("A producer connects when it sends for the first time."),
    )
