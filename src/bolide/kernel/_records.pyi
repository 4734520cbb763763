from bolide.kernel.records import body_crc as body_crc
from bolide.kernel.records import describe as describe
from bolide.kernel.records import read_record as read_record
from bolide.kernel.records import record_size as record_size
from bolide.kernel.records import scan as scan
from bolide.kernel.records import write_record as write_record

LAYOUTS: dict[str, tuple[int, int]]
