"""Keys of a broker.conf that have no effect here, with RocketMQ's defaults, and why."""

from bolide.config import Ignored
from bolide.remoting.settings import IGNORED_SERVER, THREADS

_NO_QUEUE = "requests wait for no thread, so none grows old before its turn"
_REPLICATION = "it comes with replication"
_CONTROLLER = "it comes with the controller"
_OPS = "every half message that is done with has its own op message, which all releases can read"
_HALVES = "open half messages are counted when somebody asks, and their number is kept in no file"
_TIMER = "one task does all for what waits, and tries each delivery until it succeeds"
_POP = "popped messages are kept in another way, which needs no such setting"
_POP_KV = "popped messages are never kept in RocksDB"
_POP_ALWAYS = "it is always so"
_SQL = "messages are not marked for filters when stored: expressions are evaluated when read"
_ACCESS = "it comes with access control"
_METRICS = "it comes with metrics"
_COMPACTION = "there is no compaction of topics"
_LMQ = "there are no light message queues"
_BILLING = "nobody is billed by message"
_ADDRESSES = "NameServers are those of namesrvAddr; their host names are looked up at each connect"
_REGISTRATION = "one registration tells all topics"
_CONTAINER = "there are no broker containers"
_PROXY = "it matters to RocketMQ's proxy only"
_COLD = "a read that needs the disk is done on another thread and holds up nobody"
_UNUSED = "RocketMQ does not use it any more"
_OWN_CALLS = "a broker here makes few calls of its own"
_SCHEDULED = "one task delivers the delayed messages of all levels"
_ROCKSDB = "the store is made of files"
_STATISTICS = "statistics of deleted topics and groups go with them, all others are kept"

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
    "haSendHeartbeatInterval": "5000",
    "haHousekeepingInterval": "20000",
    "haTransferBatchSize": "32768",
    "haMasterAddress": "",
    "haMaxGapNotInSync": "268435456",
    "haSlaveFallbehindMax": "268435456",
    "haFlowControlEnable": "false",
    "maxHaTransferByteInSecond": "104857600",
    "haMaxTimeSlaveNotCatchup": "15000",
    "putMessageTimeout": "8000",
    "slaveTimeout": "3000",
    "offsetCheckInSlave": "false",
    "duplicationEnable": "false",
    "totalReplicas": "1",
    "inSyncReplicas": "1",
    "minInSyncReplicas": "1",
    "allAckInSyncStateSet": "false",
    "enableAutoInSyncReplicas": "false",
    "syncMasterFlushOffsetWhenStartup": "false",
    "maxChecksumRange": "1073741824",
    "maxSlaveResendLength": "268435456",
    "syncFromLastFile": "false",
    "asyncLearner": "false",
    "enableSlaveActingMaster": "false",
    "enableRemoteEscape": "false",
    "skipPreOnline": "false",
    "forwardTimeout": "3000",
    "lockInStrictMode": "false",
    "brokerHeartbeatInterval": "1000",
    "sendHeartbeatTimeoutMillis": "1000",
    "brokerNotActiveTimeoutMillis": "10000",
    "syncBrokerMemberGroupPeriod": "1000",
    "cleanOfflineBrokerInterval": "30000",
    "compatibleWithOldNameSrv": "true",
    "consumerOffsetUpdateVersionStep": "500",
    "delayOffsetUpdateVersionStep": "200",
}

_CONTROLLER_KEYS = {
    "enableControllerMode": "false",
    "controllerAddr": "",
    "fetchControllerAddrByDnsLookup": "false",
    "syncBrokerMetadataPeriod": "5000",
    "checkSyncStateSetPeriod": "5000",
    "syncControllerMetadataPeriod": "10000",
    "controllerHeartBeatTimeoutMills": "10000",
    "brokerElectionPriority": "2147483647",
    "storePathEpochFile": "",
    "storePathBrokerIdentity": "",
}

_TRANSACTION_KEYS = {
    "transactionMetricFlushInterval": Ignored("3000", _HALVES),
    "transactionOpMsgMaxSize": Ignored("4096", _OPS),
    "transactionOpBatchInterval": Ignored("3000", _OPS),
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
    "timerCongestNumEachSlot": Ignored("2147483647", "a second takes as many as come"),
    "disappearTimeAfterStart": Ignored("-1", "a broker delivers as soon as it runs"),
    "allowRecallWhenBrokerNotWriteable": Ignored("true", "it is always so"),
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

_ACCESS_KEYS = {
    "aclEnable": "false",
    "authenticationEnabled": "false",
    "authorizationEnabled": "false",
    "authConfigPath": "",
    "configName": "",
    "clusterName": "",
    "authenticationProvider": "",
    "authenticationMetadataProvider": "",
    "authenticationStrategy": "",
    "authenticationWhitelist": "",
    "initAuthenticationUser": "",
    "innerClientAuthenticationCredentials": "",
    "authorizationProvider": "",
    "authorizationMetadataProvider": "",
    "authorizationStrategy": "",
    "authorizationWhitelist": "",
    "migrateAuthFromV1Enabled": "false",
    "userCacheMaxNum": "1000",
    "userCacheExpiredSecond": "600",
    "userCacheRefreshSecond": "60",
    "aclCacheMaxNum": "1000",
    "aclCacheExpiredSecond": "600",
    "aclCacheRefreshSecond": "60",
    "statefulAuthenticationCacheMaxNum": "10000",
    "statefulAuthenticationCacheExpiredSecond": "60",
    "statefulAuthorizationCacheMaxNum": "10000",
    "statefulAuthorizationCacheExpiredSecond": "60",
}

_METRICS_KEYS = {
    "metricsExporterType": "DISABLE",
    "metricsOtelCardinalityLimit": "50000",
    "metricsGrpcExporterTarget": "",
    "metricsGrpcExporterHeader": "",
    "metricGrpcExporterTimeOutInMills": "3000",
    "metricGrpcExporterIntervalInMills": "60000",
    "metricLoggingExporterIntervalInMills": "10000",
    "metricsPromExporterPort": "5557",
    "metricsPromExporterHost": "",
    "metricsLabel": "",
    "metricsInDelta": "false",
    "estimateAccumulation": "true",
    "maxConsumeQueueScan": "20000",
    "sampleCountThreshold": "5000",
    "enableRemotingMetrics": "true",
    "enableMessageStoreMetrics": "true",
    "enablePopMetrics": "true",
    "enableConnectionMetrics": "true",
    "enableTransactionMetrics": "true",
    "enableStatsMetrics": "true",
    "enableRequestMetrics": "true",
    "enableLagAndDlqMetrics": "true",
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

_CLIENT_KEYS = {
    "clientWorkerThreads": "4",
    "clientCallbackExecutorThreads": "4",
    "clientOnewaySemaphoreValue": "65535",
    "clientAsyncSemaphoreValue": "65535",
    "channelNotActiveInterval": "60000",
    "clientChannelMaxIdleTimeSeconds": "120",
    "clientSocketSndBufSize": "0",
    "clientSocketRcvBufSize": "0",
    "clientPooledByteBufAllocatorEnable": "false",
    "clientCloseSocketIfTimeout": "true",
    "socksProxyConfig": "{}",
    "disableCallbackExecutor": "false",
    "disableNettyWorkerGroup": "false",
    "maxReconnectIntervalTimeSeconds": "60",
    "enableReconnectForGoAway": "true",
    "scanAvailableNameSrv": "true",
}

_COMPACTION_KEYS = {
    "enableCompaction": "true",
    "compactionMappedFileSize": "104857600",
    "compactionCqMappedFileSize": "10485760",
    "compactionScheduleInternal": "900000",
    "compactionThreadNum": "6",
    "maxOffsetMapSize": "104857600",
}

_SINGLE = {
    "messageStorePlugIn": Ignored("", "plug-ins of the store are Java classes"),
    "transferMsgByHeap": Ignored("true", "a reply is always built in memory"),
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
    "enableMixedMessageType": Ignored("false", _PROXY),
    "realTimeNotifyConsumerChange": Ignored("true", "consumers are always told at once"),
    "useStaticSubscription": Ignored("false", "heartbeats say who has subscribed to what"),
    "subscriptionExpiredTimeout": Ignored(
        "600000", "heartbeats say who has subscribed to what, and nothing else is kept"
    ),
    "enableRegisterProducer": Ignored("true", "producers are always listed"),
    "enableCreateSysGroup": Ignored("true", "the groups of the tools are always there"),
    "validateSystemTopicWhenUpdateTopic": Ignored("true", "system topics are always guarded"),
    "disableConsumeIfConsumerReadSlowly": Ignored("false", _COLD),
    "consumerFallbehindThreshold": Ignored("17179869184", _COLD),
    "coldCtrStrategyEnable": Ignored("false", _COLD),
    "usePIDColdCtrStrategy": Ignored("true", _COLD),
    "cgColdReadThreshold": Ignored("3145728", _COLD),
    "globalColdReadThreshold": Ignored("104857600", _COLD),
    "printChannelGroups": Ignored("false", "mqadmin shows the clients of a group"),
    "printChannelGroupsMinNum": Ignored("5", "mqadmin shows the clients of a group"),
    "enableDetailStat": Ignored("true", "all statistics are always kept"),
    "autoDeleteUnusedStats": Ignored("true", _STATISTICS),
    "configManagerVersion": Ignored("V1", _ROCKSDB),
    "enableLmq": Ignored("false", _LMQ),
    "enableLmqStats": Ignored("false", _LMQ),
    "enableMultiDispatch": Ignored("false", _LMQ),
    "maxLmqConsumeQueueNum": Ignored("20000", _LMQ),
    "enableScheduleMessageStats": Ignored("true", "all statistics are always kept"),
    "enableScheduleAsyncDeliver": Ignored("false", _SCHEDULED),
    "scheduleAsyncDeliverMaxPendingLimit": Ignored("2000", _SCHEDULED),
    "scheduleAsyncDeliverMaxResendNum2Blocked": Ignored("3", _SCHEDULED),
    "mapperFileSizeBatchConsumeQueue": Ignored("13800000", "every message has a queue entry"),
    "searchBcqByCacheEnable": Ignored("true", "every message has a queue entry"),
    "enableCleanExpiredOffset": Ignored("false", "offsets stay until their group is deleted"),
    "readUnCommitted": Ignored("false", _REPLICATION),
    "tls.server.authClient": Ignored(
        "false", "client certificates are checked whenever tls.server.need.client.auth asks for one"
    ),
    "tls.client.authServer": Ignored(
        "false", "a server's certificate is checked whenever tls.client.trustCertPath is set"
    ),
    "tls.test.mode.enable": Ignored("true", "there is no self-signed certificate for tests"),
}


def _all_for(reason: str, defaults: dict[str, str]) -> dict[str, Ignored]:
    return {key: Ignored(default, reason) for key, default in defaults.items()}


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
    | _all_for(_ACCESS, _ACCESS_KEYS)
    | _all_for(_METRICS, _METRICS_KEYS)
    | _all_for(_BILLING, _BILLING_KEYS)
    | _all_for(_OWN_CALLS, _CLIENT_KEYS)
    | _all_for(_COMPACTION, _COMPACTION_KEYS)
    | _SINGLE
    | IGNORED_SERVER
)

_OPEN = "this version has no access control and would serve everybody; leave the key out to run so"
_SECOND_MASTER = "this broker would be one more master; leave the key out to run it as one"

REFUSED_WHEN_TRUE = {
    "aclEnable": _OPEN,
    "authenticationEnabled": _OPEN,
    "authorizationEnabled": _OPEN,
    "enableControllerMode": _SECOND_MASTER,
    "enableDLegerCommitLog": _SECOND_MASTER,
}
"""Switches that cannot be passed over: who sets them counts on what is not there."""
