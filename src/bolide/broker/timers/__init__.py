"""Messages that wait for a time of their own: taking them, delivering them, taking them back."""

from bolide.broker.timers.scheduler import Timers
from bolide.broker.timers.timetable import Timetable

__all__ = ["Timers", "Timetable"]
