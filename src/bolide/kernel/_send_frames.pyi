from bolide.kernel.send_frames import SendTemplate as SendTemplate
from bolide.kernel.send_frames import read_answers as read_answers
