from bolide.kernel.reference import body_crc as body_crc
from bolide.kernel.reference import describe as describe
from bolide.kernel.reference import read_record as read_record
from bolide.kernel.reference import record_size as record_size
from bolide.kernel.reference import scan as scan
from bolide.kernel.reference import write_record as write_record
