"""Broker settings: declarations, changes at run time, and RocketMQ keys without effect here."""
