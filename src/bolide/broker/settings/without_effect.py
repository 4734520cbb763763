"""Keys of a broker.conf that have no effect here, with RocketMQ's defaults and the reasons."""

import os
from collections.abc import Collection

from bolide.auth.settings import IGNORED_ACCESS
from bolide.config import Ignored
from bolide.remoting.settings import IGNORED_SERVER, THREADS

_NO_QUEUE = "requests do not queue for threads, so none expires in a queue"
_REPLICATION = "replication has no such setting here"
_CONTROLLER = "the controller tells brokers its own intervals"
_OPS = "each completed half message gets its own op message, which all releases can read"
_HALVES = "open half messages are counted on request; the number is not stored"
_TIMER = "one task delivers all timed messages and retries each delivery until it succeeds"
_POP = "the POP journal replaces RocketMQ's check-point messages and has no such setting"
_POP_KV = "the state of POP is never stored in RocksDB"
_POP_ALWAYS = "always on"
_SQL = "filter expressions are evaluated when messages are read, not when they are stored"
_LMQ = "light message queues are not implemented"
_LIGHT_TOPICS = "light topics are not implemented"
_NOTICES = "a notification counts messages without filtering them"
_ENGINES = "there is one timer engine"
_BILLING = "there are no billing statistics"
_ADDRESSES = "namesrvAddr lists the NameServers; host names are resolved at each connection"
_REGISTRATION = "one registration contains all topics"
_CONTAINER = "broker containers are not implemented"
_PROXY = "only RocketMQ's proxy uses it"
_COLD = "disk reads run on another thread and do not block other requests"
_COLD_STRATEGY = "thresholds of cold reads change only when an administrator sets them"
_UNUSED = "RocketMQ no longer uses it"
_OWN_CALLS = "the broker makes few calls as a client"
_SCHEDULED = "one task delivers the delayed messages of all levels"
_ROCKSDB = "the store does not use RocksDB"
_STATISTICS = "statistics are deleted with their topic or group and kept otherwise"

_THREAD_POOLS = {
    "sendMessageThreadPoolNums": "4",
    "putMessageFutureThreadPoolNums": "4",
    "pullMessageThreadPoolNums": "16",
    "litePullMessageThreadPoolNums": "16",
    "ackMessageThreadPoolNums": "16",
    "processReplyMessageThreadPoolNums": "16",
    "queryMessageThreadPoolNums": "8",
    "adminBrokerThreadPoolNums": "16",
    "clientManageThreadPoolNums": "32",
    "consumerManageThreadPoolNums": "32",
    "loadBalanceProcessorThreadPoolNums": "32",
    "heartbeatThreadPoolNums": "32",
    "recoverThreadPoolNums": "32",
    "endTransactionThreadPoolNums": "8",
    "asyncSendEnable": "true",
    "recoverConcurrently": "false",
    "enableFastChannelEventProcess": "false",
}

_REQUEST_QUEUES = {
    "sendThreadPoolQueueCapacity": "10000",
    "putThreadPoolQueueCapacity": "10000",
    "pullThreadPoolQueueCapacity": "100000",
    "litePullThreadPoolQueueCapacity": "100000",
    "ackThreadPoolQueueCapacity": "100000",
    "replyThreadPoolQueueCapacity": "10000",
    "queryThreadPoolQueueCapacity": "20000",
    "clientManagerThreadPoolQueueCapacity": "1000000",
    "consumerManagerThreadPoolQueueCapacity": "1000000",
    "heartbeatThreadPoolQueueCapacity": "50000",
    "endTransactionPoolQueueCapacity": "100000",
    "adminBrokerThreadPoolQueueCapacity": "10000",
    "loadBalanceThreadPoolQueueCapacity": "100000",
    "brokerFastFailureEnable": "true",
    "waitTimeMillsInSendQueue": "200",
    "waitTimeMillsInPullQueue": "5000",
    "waitTimeMillsInLitePullQueue": "5000",
    "waitTimeMillsInHeartbeatQueue": "31000",
    "waitTimeMillsInTransactionQueue": "3000",
    "waitTimeMillsInAckQueue": "3000",
    "waitTimeMillsInAdminBrokerQueue": "5000",
}

_REPLICATION_KEYS = {
    "haFlowControlEnable": "false",
    "maxHaTransferByteInSecond": "104857600",
    "putMessageTimeout": "8000",
    "offsetCheckInSlave": "false",
    "duplicationEnable": "false",
    "totalReplicas": "1",
    "enableAutoInSyncReplicas": "false",
    "syncMasterFlushOffsetWhenStartup": "false",
    "maxChecksumRange": "1073741824",
    "maxSlaveResendLength": "268435456",
    "lockInStrictMode": "false",
    "brokerHeartbeatInterval": "1000",
    "sendHeartbeatTimeoutMillis": "1000",
    "brokerNotActiveTimeoutMillis": "10000",
    "cleanOfflineBrokerInterval": "30000",
    "compatibleWithOldNameSrv": "true",
    "consumerOffsetUpdateVersionStep": "500",
    "delayOffsetUpdateVersionStep": "200",
}

_CONTROLLER_KEYS = {
    "fetchControllerAddrByDnsLookup": "false",
    "syncBrokerMetadataPeriod": "5000",
    "checkSyncStateSetPeriod": "5000",
    "syncControllerMetadataPeriod": "10000",
    "controllerHeartBeatTimeoutMills": "10000",
}

_TRANSACTION_KEYS = {
    "transactionMetricFlushInterval": Ignored("10000", _HALVES),
    "transactionOpMsgMaxSize": Ignored("4096", _OPS),
    "transactionOpBatchInterval": Ignored("3000", _OPS),
    "transRocksDBEnable": Ignored("false", _ROCKSDB),
    "transWriteOriginTransHalfEnable": Ignored("true", "half messages are always in their topic"),
    "transactionCheckRocksdbCoreThreads": Ignored("2", _ROCKSDB),
    "transactionCheckRocksdbMaxThreads": Ignored("5", _ROCKSDB),
    "transactionCheckRocksdbQueueCapacity": Ignored("2000", _ROCKSDB),
}

_TIMER_KEYS = {
    "timerFlushIntervalMs": "1000",
    "timerGetMessageThreadNum": "3",
    "timerPutMessageThreadNum": "3",
    "timerEnableDisruptor": "false",
    "timerWarmEnable": "false",
    "timerProgressLogIntervalMs": "10000",
    "timerEnableCheckMetrics": "true",
    "timerCheckMetricsWhen": "05",
    "timerMetricSmallThreshold": "1000000",
    "timerSkipUnknownError": "false",
    "timerEnableRetryUntilSuccess": "false",
    "timerStopEnqueue": "false",
    "timerStopDequeue": "false",
}

_OTHER_TIMER_KEYS = {
    "timerInterceptDelayLevel": Ignored("false", _UNUSED),
    "timerCongestNumEachSlot": Ignored("2147483647", "a slot has no limit"),
    "disappearTimeAfterStart": Ignored("-1", "deliveries begin at start"),
    "allowRecallWhenBrokerNotWriteable": Ignored("true", "always on"),
    "timerWheelSnapshotFlush": Ignored("false", "the timer wheel is written in place"),
    "timerWheelSnapshotIntervalMs": Ignored("10000", "the timer wheel is written in place"),
    "timerRecallToTimeWheelEnable": Ignored("true", _ENGINES),
    "timerRecallToTimelineEnable": Ignored("true", _ENGINES),
    "timerRocksDBEnable": Ignored("false", _ENGINES),
    "timerRocksDBRollMaxTps": Ignored("8000.0", _ENGINES),
    "timerRocksDBTimeExpiredMaxTps": Ignored("200000.0", _ENGINES),
    "timerRocksDBStopScan": Ignored("false", _ENGINES),
    "timerRocksDBPrecisionMs": Ignored("1000", _ENGINES),
    "timerRocksDBRollIntervalHours": Ignored("1", _ENGINES),
    "timerRocksDBRollRangeHours": Ignored("2", _ENGINES),
    "timerReputServiceCorePoolSize": Ignored("6", _ENGINES),
    "timerReputServiceMaxPoolSize": Ignored("6", _ENGINES),
    "timerReputServiceQueueCapacity": Ignored("10000", _ENGINES),
}

_POP_KEYS = {
    "popPollingMapSize": "100000",
    "popPollingMapExpireTimeSeconds": "600",
    "reviveInterval": "1000",
    "reviveMaxSlow": "3",
    "reviveScanTime": "10000",
    "reviveAckWaitMs": "180000",
    "enableSkipLongAwaitingAck": "false",
    "enablePopLog": "false",
    "enablePopBufferMerge": "false",
    "enablePopBatchAck": "false",
    "popCkStayBufferTime": "10000",
    "popCkStayBufferTimeOut": "3000",
    "popCkMaxBufferSize": "200000",
    "popCkOffsetMaxQueueSize": "20000",
    "popLongPollingForceNotifyInterval": "800",
    "enableNotifyBeforePopCalculateLag": "true",
    "enableNotifyAfterPopOrderLockRelease": "true",
    "popConsumerFSServiceInit": "true",
    "popReviveMaxReturnSizePerRead": "16384",
    "popReviveMaxAttemptTimes": "16",
    "popReviveConcurrency": "32",
    "popReviveSkipIfGroupAbsent": "true",
    "skipWhenCKRePutReachMaxTimes": "false",
    "appendAckAsync": "false",
    "appendCkAsync": "false",
}

_POP_KV_KEYS = {
    "popConsumerKVServiceLog": "false",
    "popConsumerKVServiceInit": "false",
    "popConsumerKVServiceEnable": "false",
}

_POP_ALWAYS_KEYS = {
    "retrieveMessageFromPopRetryTopicV1": "true",
    "clearRetryTopicWhenDeleteTopic": "true",
}

_SQL_KEYS = {
    "enableCalcFilterBitMap": "false",
    "expectConsumerNumUseFilter": "32",
    "maxErrorRateOfBloomFilter": "20",
}

_BILLING_KEYS = {
    "commercialEnable": "true",
    "commercialTimerCount": "1",
    "commercialTransCount": "1",
    "commercialBigCount": "1",
    "commercialBaseCount": "1",
    "commercialSizePerMsg": "4096",
    "accountStatsEnable": "true",
    "accountStatsPrintZeroValues": "true",
}

_PROCESSORS = str(
    len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
)
"""mqadmin exportMetrics shows this setting as the number of processors."""

_CLIENT_KEYS = {
    "clientWorkerThreads": "4",
    "clientCallbackExecutorThreads": _PROCESSORS,
    "clientOnewaySemaphoreValue": "65535",
    "clientAsyncSemaphoreValue": "65535",
    "channelNotActiveInterval": "60000",
    "clientChannelMaxIdleTimeSeconds": "120",
    "clientSocketSndBufSize": "0",
    "clientSocketRcvBufSize": "0",
    "clientPooledByteBufAllocatorEnable": "false",
    "clientCloseSocketIfTimeout": "true",
    "disableCallbackExecutor": "false",
    "disableNettyWorkerGroup": "false",
    "maxReconnectIntervalTimeSeconds": "60",
    "enableReconnectForGoAway": "true",
    "scanAvailableNameSrv": "true",
}

_LIGHT_TOPIC_KEYS = {
    "enableLiteEventMode": "true",
    "liteEventCheckInterval": "10000",
    "liteTtlCheckInterval": "120000",
    "minLiteTTl": "900000",
    "liteSubscriptionCheckInterval": "120000",
    "liteSubscriptionCheckTimeoutMills": "180000",
    "maxLiteSubscriptionCount": "100000",
    "enableLitePopLog": "false",
    "maxClientEventCount": "100",
    "liteEventFullDispatchDelayTime": "10000",
    "liteEventFullDispatchDelayTimeForWildcardGroup": "10000",
    "liteLagLatencyCollectEnable": "false",
    "liteLagLatencyMetricsEnable": "false",
    "liteLagCountMetricsEnable": "false",
    "liteLagLatencyTopK": "50",
}

_SINGLE = {
    "messageStorePlugIn": Ignored("", "store plug-ins are Java classes", fixed=True),
    "socksProxyConfig": Ignored("{}", _OWN_CALLS, secret=True),
    "transferMsgByHeap": Ignored("true", "replies are always built in memory"),
    "highSpeedMode": Ignored("false", _UNUSED),
    "maxDelayTime": Ignored("40", _UNUSED),
    "flushConsumerOffsetHistoryInterval": Ignored("60000", _UNUSED),
    "enableNetWorkFlowControl": Ignored("false", _UNUSED),
    "isolateLogEnable": Ignored("false", _CONTAINER),
    "brokerContainer": Ignored("false", _CONTAINER),
    "inBrokerContainer": Ignored("false", _CONTAINER),
    "fetchNameSrvAddrByDnsLookup": Ignored("false", _ADDRESSES),
    "fetchNamesrvAddrByAddressServer": Ignored("false", _ADDRESSES),
    "fetchNamesrvAddrInterval": Ignored("10000", _ADDRESSES),
    "updateNameServerAddrPeriod": Ignored("120000", _ADDRESSES),
    "enableSingleTopicRegister": Ignored("false", _REGISTRATION),
    "enableSplitRegistration": Ignored("false", _REGISTRATION),
    "splitRegistrationSize": Ignored("800", _REGISTRATION),
    "enableSplitMetadata": Ignored("true", _REGISTRATION),
    "splitMetadataSize": Ignored("2000", _REGISTRATION),
    "enableBroadcastOffsetStore": Ignored("true", _PROXY),
    "broadcastOffsetExpireSecond": Ignored("120", _PROXY),
    "broadcastOffsetExpireMaxSecond": Ignored("300", _PROXY),
    "realTimeNotifyConsumerChange": Ignored("true", "consumers are always notified at once"),
    "useStaticSubscription": Ignored("false", "heartbeats are the only source of subscriptions"),
    "subscriptionExpiredTimeout": Ignored(
        "600000", "heartbeats are the only source of subscriptions"
    ),
    "enableRegisterProducer": Ignored("true", "producers are always registered"),
    "enableCreateSysGroup": Ignored("true", "system groups are always created"),
    "validateSystemTopicWhenUpdateTopic": Ignored("true", "system topics are always protected"),
    "disableConsumeIfConsumerReadSlowly": Ignored("false", _COLD),
    "consumerFallbehindThreshold": Ignored("17179869184", _COLD),
    "coldCtrStrategyEnable": Ignored("false", _COLD_STRATEGY),
    "usePIDColdCtrStrategy": Ignored("true", _COLD_STRATEGY),
    "printChannelGroups": Ignored("false", "mqadmin shows the clients of a group"),
    "printChannelGroupsMinNum": Ignored("5", "mqadmin shows the clients of a group"),
    "enableDetailStat": Ignored("true", "all statistics are always kept"),
    "autoDeleteUnusedStats": Ignored("true", _STATISTICS),
    "configManagerVersion": Ignored("v1", _ROCKSDB),
    "useSingleRocksDBForAllConfigs": Ignored("false", _ROCKSDB),
    "persistConsumerOffsetIncrementally": Ignored("false", _ROCKSDB),
    "useSeparateRetryQueue": Ignored("false", _POP),
    "useMessageFilterForNotification": Ignored("true", _NOTICES),
    "maxMessageFilterNumForNotification": Ignored("64", _NOTICES),
    "enableLmq": Ignored("false", _LMQ),
    "enableLmqStats": Ignored("false", _LMQ),
    "enableMultiDispatch": Ignored("false", _LMQ),
    "maxLmqConsumeQueueNum": Ignored("20000", _LMQ),
    "enableLmqQuota": Ignored("false", _LMQ),
    "enableScheduleMessageStats": Ignored("true", "all statistics are always kept"),
    "enableScheduleAsyncDeliver": Ignored("false", _SCHEDULED),
    "scheduleAsyncDeliverMaxPendingLimit": Ignored("2000", _SCHEDULED),
    "scheduleAsyncDeliverMaxResendNum2Blocked": Ignored("3", _SCHEDULED),
    "searchBcqByCacheEnable": Ignored("true", "units of batch queues are searched in the files"),
    "enableCleanExpiredOffset": Ignored("false", "offsets are kept until their group is deleted"),
    "readUnCommitted": Ignored("false", _REPLICATION),
    "tls.test.mode.enable": Ignored("true", "there is no self-signed test certificate", fixed=True),
}


def _all_for(
    reason: str, defaults: dict[str, str], fixed: Collection[str] = ()
) -> dict[str, Ignored]:
    """Keys with one reason; RocketMQ uses the fixed ones as paths, addresses or classes."""
    return {key: Ignored(default, reason, key in fixed) for key, default in defaults.items()}


IGNORED = (
    _all_for(THREADS, _THREAD_POOLS)
    | _all_for(_NO_QUEUE, _REQUEST_QUEUES)
    | _all_for(_REPLICATION, _REPLICATION_KEYS)
    | _all_for(_CONTROLLER, _CONTROLLER_KEYS)
    | _TRANSACTION_KEYS
    | _all_for(_TIMER, _TIMER_KEYS)
    | _OTHER_TIMER_KEYS
    | _all_for(_POP, _POP_KEYS)
    | _all_for(_POP_KV, _POP_KV_KEYS)
    | _all_for(_POP_ALWAYS, _POP_ALWAYS_KEYS)
    | _all_for(_SQL, _SQL_KEYS)
    | IGNORED_ACCESS
    | _all_for(_BILLING, _BILLING_KEYS)
    | _all_for(_OWN_CALLS, _CLIENT_KEYS)
    | _all_for(_LIGHT_TOPICS, _LIGHT_TOPIC_KEYS)
    | _SINGLE
    | IGNORED_SERVER
)

_ONLY_IN_EXAMPLES = "RocketMQ does not read it either; the file is below storePathRootDir"

IGNORED_IN_FILES = {
    "rmqAddressServerDomain": Ignored("", _ADDRESSES, fixed=True),
    "rmqAddressServerSubGroup": Ignored("", _ADDRESSES, fixed=True),
    "storeCheckpoint": Ignored("", _ONLY_IN_EXAMPLES, fixed=True),
    "abortFile": Ignored("", _ONLY_IN_EXAMPLES, fixed=True),
    "checkTransactionMessageEnable": Ignored("", _UNUSED),
}
"""Keys that many a broker.conf has and no `BrokerConfig`; the console and mqadmin hide them."""
