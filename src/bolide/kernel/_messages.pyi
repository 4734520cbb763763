from bolide.kernel.messages import joined_flags as joined_flags
from bolide.kernel.messages import read_messages as read_messages
