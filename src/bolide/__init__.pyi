from bolide.admin import AdminClient as AdminClient
from bolide.client.consuming.consume import Retry as Retry
from bolide.client.consuming.lite_pull_consumer import LitePullConsumer as LitePullConsumer
from bolide.client.consuming.pull_consumer import PullConsumer as PullConsumer
from bolide.client.consuming.pull_schedule import PullSchedule as PullSchedule
from bolide.client.consuming.push_consumer import PushConsumer as PushConsumer
from bolide.client.producing.producer import Producer as Producer
from bolide.client.producing.results import SendResult as SendResult
from bolide.client.producing.results import SendStatus as SendStatus
from bolide.errors import BolideError as BolideError
from bolide.model.message import CompressionType as CompressionType
from bolide.model.message import Message as Message
from bolide.model.message import StoredMessage as StoredMessage
from bolide.model.message_checks import InvalidMessage as InvalidMessage
from bolide.model.message_queue import MessageQueue as MessageQueue
from bolide.version import __version__ as __version__

__all__: list[str]
