from bolide.kernel.reference import find_keys as find_keys
from bolide.kernel.reference import put_keys as put_keys
from bolide.kernel.reference import rebuild_slots as rebuild_slots
