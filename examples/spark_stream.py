"""Count the messages of a topic by their tags, in Spark, as they arrive; Ctrl-C ends it."""

import sys

from bolide.spark import session

spark = session(name_server=sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
stream = spark.readStream.format("rocketmq").option("topic", "TopicTest")
messages = stream.option("startingOffsets", "earliest").load()
counts = messages.groupBy("tags").count()
query = counts.writeStream.format("console").outputMode("complete").start()
query.awaitTermination()
