from bolide.admin import AdminClient as AdminClient
from bolide.client.consuming import assignment as assignment
from bolide.client.consuming.consume import Retry as Retry
from bolide.client.consuming.lite_pull_consumer import LitePullConsumer as LitePullConsumer
from bolide.client.consuming.process_queue import FlowLimits as FlowLimits
from bolide.client.consuming.pull_consumer import PullConsumer as PullConsumer
from bolide.client.consuming.pull_schedule import PullSchedule as PullSchedule
from bolide.client.consuming.pull_schedule import PullTurn as PullTurn
from bolide.client.consuming.pulling import PullResult as PullResult
from bolide.client.consuming.pulling import PullStatus as PullStatus
from bolide.client.consuming.push_consumer import PushConsumer as PushConsumer
from bolide.client.consuming.subscription import Sql as Sql
from bolide.client.producing import selectors as selectors
from bolide.client.producing.faults import FaultTable as FaultTable
from bolide.client.producing.producer import Producer as Producer
from bolide.client.producing.results import SendResult as SendResult
from bolide.client.producing.results import SendStatus as SendStatus
from bolide.errors import BolideError as BolideError
from bolide.model.message import CompressionType as CompressionType
from bolide.model.message import Message as Message
from bolide.model.message import StoredMessage as StoredMessage
from bolide.model.message_checks import InvalidMessage as InvalidMessage
from bolide.model.message_queue import MessageQueue as MessageQueue
from bolide.remoting.tls import ClientTls as ClientTls
from bolide.version import __version__ as __version__

__all__: list[str]
