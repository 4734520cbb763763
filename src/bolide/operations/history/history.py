"""`History`: the latest figures, and series of them over time."""

from collections.abc import Mapping, Sequence

from bolide.operations.history.figures import (
    BrokerFigures,
    GroupFigures,
    Measure,
    Range,
    Series,
    TopicFigures,
)


class History:
    """Figures of one cluster, sampled in the background.

    It samples with the rights of its own identity. Show to others only names that they may see:
    `operations.visibility`.
    """

    def topic_figures(self) -> Mapping[str, TopicFigures]:
        """The latest figures by topic; topics that were not asked about yet are missing."""
        return {}

    def group_figures(self) -> Mapping[str, GroupFigures]:
        """The latest figures by group; groups that were not asked about yet are missing."""
        return {}

    def broker_figures(self) -> Sequence[BrokerFigures]:
        """What the brokers told in the last seconds, and which of them did not answer."""
        return ()

    async def series(
        self, measure: Measure, names: Sequence[str] = ("",), *, over: Range = Range.HOUR
    ) -> list[Series]:
        """One series per name, in the order of the names; without samples it has no points."""
        return [Series(measure=measure, name=name, step=over.seconds) for name in names]
