"""Every command of Java's mqadmin, 4.9.8 and 5.5.0, as it is run against our brokers and Apache's.

A case is a command line. Both clusters hold the same, the cases run in this order on both, and what
they print is compared. Names in braces are facts of a cluster: addresses, ids, files.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

NEW, OLD = "5.x", "4.9"
"""Names in versions.toml of the releases whose mqadmin is run."""

OWN = "ours"
"""Our mqadmin."""

OURS, APACHE = "bolide", "apache"
"""Kinds of clusters."""


class Place(Enum):
    """The cluster that a case needs."""

    PLAIN = "one broker; users and policies may be changed by everybody"
    GROUP = "controllers, and two brokers of one group that fails over"
    ACCOUNTS = "one broker with the accounts of ACL 1.0"


class Compare(Enum):
    """What is compared of what both print."""

    TEXT = "all lines, sorted; rates, times, ids and addresses are masked"
    FIGURES = "all lines, sorted, whatever the numbers are"
    KEYS = "each name that Apache's shows is there; ours may show more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    words: str
    old: str | None = ""
    """The words for 4.9.8 if they are others; None if it has no such options."""
    place: Place = Place.PLAIN
    compare: Compare = Compare.TEXT
    values: tuple[str, ...] = ()
    """Names whose values are compared, too."""
    lacks: tuple[str, ...] = ()
    """Names that Apache's shows and ours does not, for the reason in `differs`."""
    differs: str = ""
    """Why ours prints something else than Apache's."""
    old_fails: str = ""
    """Why 4.9.8's fails over Apache's 5.5.0, and not over ours."""
    shows: str = ""
    """A pattern that has to be found in what it prints of ours."""
    silent: bool = False
    """It prints nothing."""
    ours: str = ""
    """Why our mqadmin ends otherwise than Java's."""
    seconds: int = 0
    """How long a command runs that does not end by itself."""

    @property
    def command(self) -> str:
        return self.words.partition(" ")[0]

    def words_for(self, who: str) -> str | None:
        """The command line for a release, or for ours; None without such a command or options."""
        if who == OWN:
            return self.words
        if who == NEW:
            return None if self.command in ONLY_OLD else self.words
        if self.command not in OLD_NAMES or self.old is None:
            return None
        return self.old or self.words


OLD_NAMES = frozenset({
    "addWritePerm", "allocateMQ", "brokerConsumeStats", "brokerStatus", "checkMsgSendRT",
    "cleanExpiredCQ", "cleanUnusedTopic", "cloneGroupOffset", "clusterAclConfigVersion",
    "clusterList", "clusterRT", "consumeMessage", "consumerConnection", "consumerProgress",
    "consumerStatus", "deleteAclConfig", "deleteExpiredCommitLog", "deleteKvConfig",
    "deleteSubGroup", "deleteTopic", "exportConfigs", "exportMetadata", "exportMetrics",
    "getBrokerConfig", "getConsumerConfig", "getNamesrvConfig", "printMsg", "printMsgByQueue",
    "producer", "producerConnection", "queryCq", "queryMsgById", "queryMsgByKey",
    "queryMsgByOffset", "queryMsgByUniqueKey", "queryMsgTraceById", "resetOffsetByTime",
    "sendMessage", "sendMsgStatus", "skipAccumulatedMessage", "startMonitoring", "statsAll",
    "topicClusterList", "topicList", "topicRoute", "topicStatus", "updateAclConfig",
    "updateBrokerConfig", "updateGlobalWhiteAddr", "updateKvConfig", "updateNamesrvConfig",
    "updateOrderConf", "updateSubGroup", "updateTopic", "updateTopicPerm", "wipeWritePerm",
})  # fmt: skip
"""The commands of 4.9.8."""

ONLY_OLD = frozenset({
    "clusterAclConfigVersion", "deleteAclConfig", "updateAclConfig", "updateGlobalWhiteAddr",
})  # fmt: skip
"""Those of them that 5.x has no more."""

NOTES = {
    "updateTopic": "a topic of type `LITE` is refused: light topics are not implemented",
    "copyUser": (
        "since ours gives no password away, users that are new to the target cannot be copied"
    ),
    **dict.fromkeys(
        (
            "getParentTopicInfo",
            "getLiteTopicInfo",
            "getLiteClientInfo",
            "getLiteGroupInfo",
            "triggerLiteDispatch",
        ),
        "run with a topic that is not light; light topics are not implemented",
    ),
}
"""What the cases do not show."""

_MESSAGE = r"Message|body|null|toString|transactionId|MAX_OFFSET|MIN_OFFSET"
_ITS_TEXT = "a message is shown with its text, not as Java's `toString` has it"
_TO_THE_END = f"{_ITS_TEXT}; it ends at the end time, where Java's prints the rest of a pull"
_OFFLINE = (
    r"CODE|DESC|consumer|not|online|the",
    "a group that is not online is said to be so, without an exception's text",
)
_NO_VERSIONS = (
    r"dataVersion|counter|stateVersion|timestamp|forbiddenTable|<changes>|lookers",
    "the versions of the tables are not exported",
)
_NULL = (r"null", "nothing is shown where Java's prints `null`")

LEFT_OUT: Mapping[str, tuple[str, str]] = {
    "exportMetadata": _NO_VERSIONS,
    "queryMsgById": _OFFLINE,
    "queryMsgByUniqueKey": _OFFLINE,
    "queryMsgByOffset": (f"{_MESSAGE}|{_OFFLINE[0]}", _OFFLINE[1]),
    "queryMsgByKey": (
        r"<ms>|<place>|Facts|IndexKey|K|all", "the index's own key of a message is not shown",
    ),
    "printMsg": (rf"{_MESSAGE}|k\d", _TO_THE_END),
    "printMsgByQueue": (_MESSAGE, _ITS_TEXT),
    "consumeMessage": (
        (rf"{_MESSAGE}|k\d|Consume|The|be|message|ok|oldler|provided|will|MessageQueue|NO_NEW_MSG"
        r"|finished.|msg|offset|print|status"),
        f"{_TO_THE_END}, and says so in other words",
    ),
    "dumpCompactionLog": (_MESSAGE, _ITS_TEXT),
    "statsAll": (r"broker-a", ""),  # a topic to which nothing was sent when ours looked
    "exportPopRecord": (
        r"false", "`-d true` is a dry run; Java's takes it for the opposite",
    ),
    "listUser": (r"<broker>|from|get|success\.|user", "it does not end with a line of success"),
    "getAcl": _NULL,
    "listAcl": _NULL,
}  # fmt: skip
"""Words of Java's mqadmin that ours does not print, and why, by command."""

_OWN_CODE = (
    "both refuse; the code of ours is 29 (`INVALID_PARAMETER`), that of Apache's 1, and ours names"
    " the attribute"
)
_CHECKED = (
    "ours refuses a value that the setting cannot have; Apache's reports success and changes"
    " nothing"
)
_NO_PASSWORDS = "ours never gives a password away: the column is empty"
_SECRETS = "ours does not show secrets such as `initAuthenticationUser`"
_NO_ROCKSDB = "not applicable: the store of ours has its queues and tables in files, not in RocksDB"
_NO_LIGHT_TOPICS = "not applicable: light topics are not implemented"
_TRANSFERED = (
    "4.9.8's fails over Apache's 5.5.0, whose figures lack `getTransferedTps`; ours have it"
)
_FILTER_SERVERS = (
    "4.9.8's fails over Apache's 5.5.0, whose settings lack `filterServerNums`; ours have it"
)

_OTHER_RAFT = (
    "ours has another Raft library, so `jraftConfig` is not there; `getNamesrvConfig` shows"
    " `enableControllerInNamesrv`; secrets such as `metricsGrpcExporterHeader` are not shown"
)
_NO_MEMBER = (
    "ours refuses a member that the controller does not know by code 2010, Apache's by 2012"
)
_BARE_KEYS = (
    "Apache's elects too, but 5.5.0's `mqadmin` cannot read the answer, whose JSON has numbers for"
    " keys; it prints what ours did"
)
_NO_SECRETS_TOLD = "both refuse by the same code; Apache's prints the secret key"
_NO_ADDRESS = "ours refuses what is no address; Apache's takes it"
_OWN_WORDS = "both refuse by the same code, in other words"

_NOT_THERE = (
    "of a name that does not exist it says so, with exit code 1, where Java's prints nothing or"
    " success"
)
_USAGE = "refuses a wrong value with exit code 2"
_NOT_ROCKSDB = "not applicable, with exit code 4: no RocksDB"
_NOT_LIGHT = "not applicable, with exit code 4: no light topics"
_NO_CONTAINER = "not applicable, with exit code 4: no broker of ours is a container"
_ENDLESS = "goes on, round by round, until it is interrupted"

_GIVEN = ("brokerName", "brokerIP1", "mappedFileSizeCommitLog", "messageDelayLevel",
          "fileReservedTime", "clientCallbackExecutorThreads")  # fmt: skip
_CREDENTIALS = (
    "initAuthenticationUser", "innerClientAuthenticationCredentials", "metricsGrpcExporterHeader",
)  # fmt: skip
_RAFT = ("jraftConfig", "enableControllerInNamesrv", "metricsGrpcExporterHeader")
_FIGURES = ("msgPutTotalTodayNow", "msgGetTotalTodayNow")

C = Case
G = partial(Case, place=Place.GROUP)
A = partial(Case, place=Place.ACCOUNTS)
CASES: Sequence[Case] = (
    # Topics
    C(words="updateTopic -b {broker} -t Made -r 6 -w 5"),
    C(words="updateTopic -c DefaultCluster -t Everywhere"),
    C(words="updateTopic -b {broker} -t Ordered -r 2 -w 2 -o true -u true"),
    C(words="updateTopic -b {broker} -t Odd -a +message.type=WRONG", old=None, differs=_OWN_CODE),
    C(words="updateTopicList -b {broker} -f {files}/topics.json"),
    C(words="updateTopicPerm -b {broker} -t Made -p 4"),
    C(words="updateTopicPerm -c DefaultCluster -t Everywhere -p 2"),
    C(words="topicRoute -t Made", shows=r'"readQueueNums":6,?'),
    C(words="topicRoute -t Made -l"),
    C(words="topicRoute -t Missing"),
    C(words="topicStatus -t Facts", shows=r"broker-a 0 0 5 <time>"),
    C(words="topicStatus -t Missing"),
    C(words="topicClusterList -t Facts"),
    C(words="topicList", shows=r"^Everywhere$"),
    C(words="topicList -c"),
    C(words="allocateMQ -t Facts -i 10.0.0.1,10.0.0.2"),
    C(words="updateOrderConf -m put -t Facts -v broker-a:2"),
    C(words="updateOrderConf -m get -t Facts"),
    C(words="updateOrderConf -m delete -t Facts"),
    # Groups
    C(words="updateSubGroup -b {broker} -g made -s false -q 2 -r 5"),
    C(
        words="updateSubGroup -c DefaultCluster -g made -s true -a false -m true -o true -w 1",
        old="updateSubGroup -c DefaultCluster -g made -s true -a false -m true -w 1",
    ),
    C(words="updateSubGroupList -b {broker} -f {files}/groups.json"),
    C(words="exportMetadata -c DefaultCluster -f {files}/all"),
    C(words="exportMetadata -b {broker} -t -f {files}/topics"),
    C(words="exportMetadata -b {broker} -g -s -f {files}/groups"),
    C(
        words="exportConfigs -c DefaultCluster -f {files}/configs",
        compare=Compare.KEYS,
        old_fails=_FILTER_SERVERS,
    ),
    C(
        words="exportMetrics -c DefaultCluster -f {files}/metrics",
        compare=Compare.FIGURES,
        old_fails=_TRANSFERED,
    ),
    C(words="updateStaticTopic -t Static-{me} -qn 4 -b broker-a"),
    C(words="topicRoute -t Static-{me}"),
    C(words="updateStaticTopic -b broker-a -t Static-{me} -qn 4"),
    C(words="updateStaticTopic -t Static-{me} -qn 6 -b broker-a"),
    C(words="updateStaticTopic -t Static-{me} -qn 5 -b broker-a"),
    C(words="remappingStaticTopic -t Static-{me} -b broker-a"),
    C(words="topicStatus -t Static-{me}"),
    C(words="statsAll", compare=Compare.FIGURES),  # brokers look at their counters every 10 s
    C(words="statsAll -t Facts", compare=Compare.FIGURES),
    C(words="statsAll -a -t Missing", ours=_NOT_THERE),
    C(words="setConsumeMode -b {broker} -t Facts -g made -m POP -q 2"),
    C(words="getConsumerConfig -g made"),
    C(words="getConsumerConfig -g missing", ours=_NOT_THERE, silent=True),
    C(words="consumerProgress", compare=Compare.FIGURES),
    C(words="consumerProgress -g readers", shows=r"Facts broker-a 1 5 5 0 "),
    C(words="consumerProgress -g readers -s true"),
    C(words="consumerProgress -g sleepers -t Facts", old=None),
    C(words="consumerProgress -g missing"),
    C(words="consumerConnection -g readers", shows=r"Facts t1 \|\| t2$"),
    C(words="consumerConnection -g readers -b {broker}"),
    C(words="consumerConnection -g missing"),
    C(words="consumerStatus -g readers"),
    C(words="consumerStatus -g readers -i {client}"),
    C(words="consumerStatus -g readers -i {client} -s"),
    C(words="consumerStatus -g missing"),
    C(words="brokerConsumeStats -b {broker}"),
    C(words="brokerConsumeStats -b {broker} -o true -l 1"),
    C(words="producerConnection -g writers -t Facts", shows=r"<client> <address> PYTHON "),
    C(words="producerConnection -g missing -t Facts"),
    C(words="producer -b {broker}"),
    C(words="cloneGroupOffset -s sleepers -d clone -t Facts"),
    C(words="cloneGroupOffset -s sleepers -d clone -t Facts -o true"),
    C(words="consumerProgress -g clone"),
    C(words="resetOffsetByTime -g sleepers -t Facts -s {middle}", shows=r"^broker-a 1 2$"),
    C(words="resetOffsetByTime -g sleepers -t Facts -s -1 -b {broker} -q 0 -o 1", old=None),
    C(words="resetOffsetByTime -g sleepers -t Facts -s now"),
    C(words="resetOffsetByTime -g readers -t Facts -s now"),
    C(words="resetOffsetByTime -g sleepers -t Facts -s yesterday"),
    C(words="skipAccumulatedMessage -g sleepers -t Facts"),
    C(words="skipAccumulatedMessage -g readers -t Facts"),
    C(words="consumerProgress -g sleepers"),
    # Messages
    C(
        words="queryMsgById -t Facts -i {offset_id}",
        shows=r"^Queue Offset: 0$",
        old="queryMsgById -i {offset_id}",
    ),
    C(words="queryMsgById -t Facts -i 7F00000100002A9F00000000000F4240", old=None),
    C(
        words="queryMsgById -t Facts -i {offset_id} -g readers -d {client}",
        old="queryMsgById -i {offset_id} -g readers -d {client}",
    ),
    C(words="queryMsgByKey -t Facts -k all"),
    C(words="queryMsgByKey -t Facts -k all -m 3", old=None),
    C(words="queryMsgByKey -t Facts -k nothing"),
    C(words="queryMsgByUniqueKey -t Facts -i {unique_id}", shows=r"Keys: \[all k0\]"),
    C(words="queryMsgByUniqueKey -t Facts -i {unique_id} -a"),
    C(words="queryMsgByUniqueKey -t Facts -i {unique_id} -g readers -d {client}"),
    C(words="queryMsgByUniqueKey -t Facts -i 7F0000010000000000000000000F4240", old=None),
    C(words="queryMsgByOffset -t Facts -b broker-a -i 0 -o 1"),
    C(words="queryMsgByOffset -t Facts -b broker-a -i 0 -o 99", ours=_NOT_THERE, silent=True),
    C(words="queryMsgTraceById -i {traced_id}"),
    C(words="printMsg -t Facts -d true", shows=r"BODY: fact 9"),
    C(words="printMsg -t Facts -s t1 -b {begin} -e {middle}"),
    C(words="printMsgByQueue -t Facts -a broker-a -i 0 -p true -d true -f true"),
    C(words="queryCq -t Facts -q 0 -i 0 -c 3 -b {broker}"),
    C(words="queryCq -t Facts -q 0 -i 0 -c 3 -b {broker} -g readers"),
    C(
        words="sendMessage -t Sent -p hello -k key -c tag -b broker-a -i 0",
        shows=r"broker-a 0 SEND_OK <id>",
    ),
    C(words="sendMessage -t Sent -p hello -m true"),
    C(words="consumeMessage -t Facts -b broker-a -i 1 -o 0 -c 2", shows=r"BODY: fact 3"),
    C(words="consumeMessage -t Facts -b broker-a -i 0"),
    C(words="consumeMessage -t Facts -g lookers"),
    C(words="consumeMessage -t Facts -s {begin} -e {middle}"),
    C(words="sendMsgStatus -b broker-a -c 2"),
    C(words="checkMsgSendRT -t Sent -a 3", compare=Compare.FIGURES),
    C(words="clusterRT -a 3 -i 30", seconds=3, compare=Compare.FIGURES),
    C(words="clusterRT -c Missing -a 3", seconds=3),
    C(words="dumpCompactionLog -f {compaction_log}"),
    C(words="dumpCompactionLog -f {files}/missing"),
    # Brokers and NameServers
    C(
        words="clusterList",
        shows=r"DefaultCluster broker-a 0 <broker> <version>",
        compare=Compare.FIGURES,
        old_fails=_TRANSFERED,
    ),
    C(words="clusterList -m"),
    C(words="clusterList -c Missing", ours=_NOT_THERE, old=None),
    C(words="brokerStatus -b {broker}", compare=Compare.KEYS, values=_FIGURES),
    C(words="brokerStatus -c DefaultCluster", compare=Compare.KEYS, values=_FIGURES),
    C(words="brokerStatus -b 127.0.0.1:1"),
    C(words="updateBrokerConfig -b {broker} -k fileReservedTime -v 24"),
    C(words="updateBrokerConfig -c DefaultCluster -k fileReservedTime -v 25"),
    C(words="updateBrokerConfig -b {broker} -k brokerConfigPath -v x"),
    C(words="updateBrokerConfig -b {broker} -k fileReservedTime -v many", differs=_CHECKED),
    C(
        words="getBrokerConfig -b {broker}",
        compare=Compare.KEYS,
        values=_GIVEN,
        lacks=_CREDENTIALS,
        differs=_SECRETS,
    ),
    C(
        words="getBrokerConfig -c DefaultCluster",
        compare=Compare.KEYS,
        values=_GIVEN,
        lacks=_CREDENTIALS,
        differs=_SECRETS,
    ),
    C(words="getNamesrvConfig", compare=Compare.KEYS),
    C(words="updateNamesrvConfig -k orderMessageEnable -v true"),
    C(words="updateNamesrvConfig -k configStorePath -v x"),
    C(words="updateKvConfig -s space -k key -v value"),
    C(words="deleteKvConfig -s space -k key"),
    C(words="wipeWritePerm -b broker-a"),
    C(words="topicRoute -t Facts"),
    C(words="addWritePerm -b broker-a"),
    C(words="addWritePerm -b missing", ours=_NOT_THERE),
    C(words="cleanExpiredCQ -b {broker}"),
    C(words="cleanExpiredCQ -c DefaultCluster"),
    C(words="cleanUnusedTopic -b {broker}"),
    C(words="deleteExpiredCommitLog -b {broker}"),
    C(words="exportPopRecord -b {broker}"),
    C(words="exportPopRecord -c DefaultCluster -d true"),
    C(words="haStatus -b {broker}"),
    C(words="haStatus -c DefaultCluster"),
    C(words="resetMasterFlushOffset -b {broker} -o 0"),
    C(words="getBrokerEpoch -b broker-a"),
    C(words="getColdDataFlowCtrInfo -b {broker}"),
    C(words="updateColdDataFlowCtrGroupConfig -b {broker} -g readers -v 1024"),
    C(words="getColdDataFlowCtrInfo -c DefaultCluster"),
    C(words="removeColdDataFlowCtrGroupConfig -b {broker} -g readers"),
    C(words="setCommitLogReadAheadMode -b {broker} -m 0"),
    C(words="setCommitLogReadAheadMode -b {broker} -m 7", ours=_USAGE),
    # Users and policies
    C(words="createUser -b {broker} -u anna -p anna-12345"),
    C(words="createUser -c DefaultCluster -u bert -p bert-12345 -t Super"),
    C(words="createUser -b {broker} -u anna -p other-12345"),
    C(words="updateUser -b {broker} -u bert -s disable"),
    C(words="getUser -b {broker} -u bert", differs=_NO_PASSWORDS),
    C(words="getUser -b {broker} -u nobody", ours=_NOT_THERE, silent=True),
    C(words="listUser -b {broker} -f a", differs=_NO_PASSWORDS),
    C(words="listUser -c DefaultCluster", differs=_NO_PASSWORDS),
    C(words="copyUser -f {broker} -t {broker} -u anna"),
    C(words="createAcl -b {broker} -s User:anna -r Topic:x,Group:g* -a Pub,Sub -d Allow"),
    C(words="createAcl -b {broker} -s User:nobody -r Topic:x -a Pub -d Allow"),
    C(words="updateAcl -b {broker} -s User:anna -r Topic:x -a Pub -d Deny"),
    C(words="getAcl -b {broker} -s User:anna"),
    C(words="getAcl -b {broker} -s User:nobody"),
    C(words="listAcl -b {broker} -s anna -r Group"),
    C(words="listAcl -c DefaultCluster"),
    C(words="copyAcl -f {broker} -t {broker} -s User:anna"),
    C(words="deleteAcl -b {broker} -s User:anna -r Topic:x"),
    C(words="deleteAcl -c DefaultCluster -s User:anna"),
    C(words="deleteUser -b {broker} -u anna"),
    C(words="deleteUser -c DefaultCluster -u bert"),
    C(words="deleteUser -b {broker} -u nobody"),
    # What we do not have
    C(words="addBroker -c {broker} -b {files}/broker.conf", ours=_NO_CONTAINER),
    C(words="removeBroker -c {broker} -b DefaultCluster:broker-b:0", ours=_NO_CONTAINER),
    C(words="exportMetadataInRocksDB -p {files} -t topics", ours=_NOT_ROCKSDB),
    C(words="rocksDBConfigToJson -b {broker} -t topics", ours=_NOT_ROCKSDB, differs=_NO_ROCKSDB),
    C(
        words="checkRocksdbCqWriteProgress -c DefaultCluster -n {namesrv} -t Facts",
        ours=_NOT_ROCKSDB,
        differs=_NO_ROCKSDB,
    ),
    C(words="switchTimerEngine -b {broker} -e F"),
    C(words="switchTimerEngine -b {broker} -e R"),
    C(words="switchTimerEngine -b {broker} -e X", ours=_USAGE),
    C(words="getBrokerLiteInfo -b {broker}", ours=_NOT_LIGHT, differs=_NO_LIGHT_TOPICS),
    C(words="getParentTopicInfo -p Facts", ours=_NOT_LIGHT),
    C(words="getLiteTopicInfo -p Facts -l light", ours=_NOT_LIGHT),
    C(words="getLiteClientInfo -p Facts -g readers -c {client}", ours=_NOT_LIGHT),
    C(words="getLiteGroupInfo -p Facts -g readers", ours=_NOT_LIGHT),
    C(words="triggerLiteDispatch -p Facts -g readers", ours=_NOT_LIGHT),
    # A group that fails over
    G(words="getControllerMetaData -a {controller}"),
    G(words="getSyncStateSet -a {controller} -b broker-a"),
    G(words="getSyncStateSet -a {controller} -c DefaultCluster"),
    G(words="getSyncStateSet -a {controller} -b missing", ours=_NOT_THERE, silent=True),
    G(words="getBrokerEpoch -b broker-a", compare=Compare.FIGURES),
    G(words="getBrokerEpoch -c DefaultCluster", compare=Compare.FIGURES),
    G(words="haStatus -b {broker}", compare=Compare.FIGURES),
    G(words="haStatus -b {slave}", compare=Compare.FIGURES),
    G(words="haStatus -c DefaultCluster", compare=Compare.FIGURES),
    G(words="resetMasterFlushOffset -b {slave} -o 0"),
    G(words="brokerStatus -b {slave}", compare=Compare.KEYS),
    G(
        words="getControllerConfig -a {controller}",
        compare=Compare.KEYS,
        lacks=_RAFT,
        differs=_OTHER_RAFT,
    ),
    G(words="updateControllerConfig -a {controller} -k scanNotActiveBrokerInterval -v 4000"),
    G(words="updateControllerConfig -a {controller} -k configStorePath -v x"),
    G(words="electMaster -a {controller} -b 9 -bn broker-a -c DefaultCluster", differs=_NO_MEMBER),
    G(
        words="electMaster -a {controller} -b {elected} -bn broker-a -c DefaultCluster",
        differs=_BARE_KEYS,
        ours="reads the answers of both",
    ),
    G(words="cleanBrokerMetadata -a {controller} -b 2 -bn broker-a -c DefaultCluster"),
    G(words="cleanBrokerMetadata -a {controller} -bn missing -c DefaultCluster"),
    # Accounts of ACL 1.0
    A(words="updateAclConfig -b {broker} -a new-account -s secret-of-new -t Orders=SUB -i PUB"),
    A(words="updateAclConfig -c DefaultCluster -a new-account -s secret-of-new -m true"),
    A(words="updateAclConfig -b {broker} -a short -s secret-of-short", differs=_NO_SECRETS_TOLD),
    A(words="deleteAclConfig -b {broker} -a orders-{me}"),
    A(words="deleteAclConfig -c DefaultCluster -a new-account"),
    A(words="deleteAclConfig -b {broker} -a not-there", differs=_OWN_WORDS),
    A(words="updateGlobalWhiteAddr -b {broker} -g 10.0.0.*,192.168.0.7"),
    A(words="updateGlobalWhiteAddr -c DefaultCluster -g 10.0.0.1"),
    A(words="updateGlobalWhiteAddr -b {broker} -g 10.0.0.300", differs=_NO_ADDRESS),
    A(words="clusterAclConfigVersion -b {broker}"),
    A(words="clusterAclConfigVersion -c DefaultCluster"),
    # Ends
    C(words="deleteTopic -c DefaultCluster -t Made"),
    C(words="topicStatus -t Made", shows="No topic route info"),
    C(words="deleteTopic -c DefaultCluster -t Static-{me}"),
    C(words="deleteSubGroup -b {broker} -g made"),
    C(words="deleteSubGroup -c DefaultCluster -g clone -r true"),
    C(words="startMonitoring", ours=_ENDLESS, silent=True, seconds=2),
)


def cases(place: Place, who: str) -> Iterator[Case]:
    """The cases that a release's mqadmin runs at a place, or ours."""
    return (case for case in CASES if case.place is place and case.words_for(who))
