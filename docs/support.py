"""Request codes of RocketMQ that are not served, or not completely, with the reasons."""

from collections.abc import Mapping

from bolide.protocol.codes import RequestCode

OURS_BEGIN = "BOLIDE_"
"""Prefix of the names of requests that RocketMQ does not have."""

_NO_CONTROLLER = "there is no controller and no change of masters yet"
_NO_REPLICATION = "there is no replication yet"
_NO_ACCESS_CONTROL = "there is no access control yet"
_NO_COLD_DATA = "cold data is read on separate threads and delays no other request"
_NO_ROCKSDB = "the store uses files, not RocksDB"
_NO_CONTAINERS = "a process runs one broker; start another process instead"

_REASONS: Mapping[str, tuple[RequestCode, ...]] = {
    _NO_ACCESS_CONTROL: (
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_GET_USER,
        RequestCode.AUTH_LIST_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
        RequestCode.AUTH_GET_ACL,
        RequestCode.AUTH_LIST_ACL,
    ),
    _NO_REPLICATION: (
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
        RequestCode.EXCHANGE_BROKER_HA_INFO,
        RequestCode.RESET_MASTER_FLUSH_OFFSET,
        RequestCode.GET_BROKER_EPOCH_CACHE,
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
    ),
    _NO_CONTROLLER: (
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
        RequestCode.CONTROLLER_ELECT_MASTER,
        RequestCode.CONTROLLER_REGISTER_BROKER,
        RequestCode.CONTROLLER_GET_REPLICA_INFO,
        RequestCode.CONTROLLER_GET_METADATA_INFO,
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
        RequestCode.UPDATE_CONTROLLER_CONFIG,
        RequestCode.GET_CONTROLLER_CONFIG,
        RequestCode.CLEAN_BROKER_DATA,
        RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
        RequestCode.CONTROLLER_APPLY_BROKER_ID,
    ),
    "queues are not mapped across brokers: give each broker its own": (
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
    ),
    _NO_COLD_DATA: (
        RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
        RequestCode.SET_COMMITLOG_READ_MODE,
    ),
    _NO_ROCKSDB: (
        RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
        RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON,
    ),
    _NO_CONTAINERS: (RequestCode.ADD_BROKER, RequestCode.REMOVE_BROKER),
}

REFUSED: Mapping[RequestCode, str] = {
    code: reason for reason, codes in _REASONS.items() for code in codes
}
"""Why Bolide does not answer a request that RocketMQ answers."""

_NO_INNER_BATCHES = "no batches in one record (`queue.type=BatchCQ`), no light message queues"
_NO_OTHER_KINDS = "neither `queue.type=BatchCQ` nor `cleanup.policy=COMPACTION`"

PARTLY: Mapping[RequestCode, str] = {
    RequestCode.SEND_MESSAGE: _NO_INNER_BATCHES,
    RequestCode.SEND_MESSAGE_V2: _NO_INNER_BATCHES,
    RequestCode.SEND_BATCH_MESSAGE: _NO_INNER_BATCHES,
    RequestCode.UPDATE_AND_CREATE_TOPIC: _NO_OTHER_KINDS,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _NO_OTHER_KINDS,
    RequestCode.GET_BROKER_HA_STATUS: "it reports a master without replicas",
    RequestCode.BROKER_HEARTBEAT: f"by the NameServer; {_NO_CONTROLLER}",
}
"""What is missing in the answer to a request."""
