from bolide.kernel.records import find_keys as find_keys
from bolide.kernel.records import put_keys as put_keys
from bolide.kernel.records import rebuild_slots as rebuild_slots
