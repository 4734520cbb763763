from bolide.kernel.sends import Sends as Sends
from bolide.kernel.sends import Slot as Slot
