"""The fault bench of `bolide chaos`, against our controller mode and RocketMQ's."""
