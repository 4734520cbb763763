"""Timer messages: messages with a delivery time of their own.

`timetable` decides when a message is due and addresses it to the timer topic; `scheduler` moves it
through the timer wheel and delivers it; `handlers` recalls and lists pending timers; `recurring`
repeats messages that have a cron expression.
"""

from bolide.broker.timers.scheduler import Timers
from bolide.broker.timers.timetable import Timetable

__all__ = ["Timers", "Timetable"]
