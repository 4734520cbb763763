from bolide.kernel.pulls import PullAnswers as PullAnswers
from bolide.kernel.pulls import is_resident as is_resident
from bolide.kernel.pulls import read_plain_pull as read_plain_pull
