from bolide.kernel.gathering import gather as gather
from bolide.kernel.gathering import is_resident as is_resident
