"""What the cluster did lately: figures that a collector samples, kept in an SQLite file.

Lists of topics and groups sort by these figures and show trends without asking the brokers.
`figures` has the values, `collector` asks the cluster, `store` keeps and thins out.
"""

from bolide.operations.history.brokers import ask_brokers
from bolide.operations.history.figures import (
    BrokerFigures,
    GroupFigures,
    Measure,
    Point,
    Range,
    Series,
    TopicFigures,
    Total,
    sum_of_known,
)
from bolide.operations.history.history import History

__all__ = [
    "BrokerFigures",
    "GroupFigures",
    "History",
    "Measure",
    "Point",
    "Range",
    "Series",
    "TopicFigures",
    "Total",
    "ask_brokers",
    "sum_of_known",
]
