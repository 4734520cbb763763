from bolide.protocol.framing import decode_frame as decode_frame
from bolide.protocol.framing import encode_frame as encode_frame
