package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const pushed = 40

func playPushConcurrent(stage *stage) facts {
	for n := 0; n < pushed/2; n++ {
		stage.send(stage.message(fmt.Sprintf("message %d", n)))
	}
	deliveries := stage.consume("1", all, newDeliveries(nil))
	for n := pushed / 2; n < pushed; n++ {
		stage.send(stage.message(fmt.Sprintf("message %d", n)))
	}
	return facts{"deliveries": stage.awaitAndCommit(deliveries, pushed)}
}

// The client writes its offsets down every 5 s, and when it ends, those that it has noted a moment
// after the delivery.
func (s *stage) awaitAndCommit(deliveries *deliveries, count int) []facts {
	found := deliveries.await(count)
	time.Sleep(settling)
	s.close()
	s.closings = nil
	return found
}

// Message 3 of each queue is refused twice.
func playPushOrdered(stage *stage) facts {
	expected := 0
	for _, queue := range stage.queues(stage.topic) {
		for n := 0; n < 10; n++ {
			message := stage.message(fmt.Sprintf("message %d", n))
			message.Queue = queue
			stage.send(message)
		}
		expected += 10 + 2
	}
	listener := newDeliveries(func(message *primitive.MessageExt) bool {
		return string(message.Body) == "message 3" && message.ReconsumeTimes < 2
	})
	listener.refusal = consumer.SuspendCurrentQueueAMoment
	deliveries := stage.consume("1", all, listener, consumer.WithConsumerOrder(true),
		consumer.WithSuspendCurrentQueueTimeMillis(100*time.Millisecond),
		consumer.WithMaxReconsumeTimes(16))
	return facts{"deliveries": stage.awaitAndCommit(deliveries, expected)}
}

func playBroadcast(stage *stage) facts {
	members := []*deliveries{}
	for n := 0; n < 2; n++ {
		members = append(members, stage.consume(fmt.Sprintf("member%d", n), all, newDeliveries(nil),
			consumer.WithConsumerModel(consumer.BroadCasting)))
	}
	for n := 0; n < pushed; n++ {
		stage.send(stage.message(fmt.Sprintf("message %d", n)))
	}
	return facts{"first": members[0].await(pushed), "second": members[1].await(pushed)}
}

// "Aa" and "BB" have one hash: only the client can tell them apart.
func playTags(stage *stage) facts {
	chosen := consumer.MessageSelector{Type: consumer.TAG, Expression: "A || Aa"}
	deliveries := stage.consume("1", chosen, newDeliveries(nil))
	for n := 0; n < 3; n++ {
		for _, tag := range []string{"A", "B", "Aa", "BB", ""} {
			message := stage.message(fmt.Sprintf("%s %d", tag, n))
			if tag != "" {
				message.WithTag(tag)
			}
			stage.send(message)
		}
	}
	return facts{"deliveries": deliveries.await(6)}
}

func playSQL(stage *stage) facts {
	chosen := consumer.MessageSelector{Type: consumer.SQL92, Expression: "number BETWEEN 2 AND 7 " +
		"AND TAGS IN ('even', 'other') AND nothing IS NULL"}
	deliveries := stage.consume("1", chosen, newDeliveries(nil))
	for n := 0; n < 10; n++ {
		message := stage.message(fmt.Sprintf("message %d", n))
		message.WithTag([]string{"even", "odd"}[n%2])
		message.WithProperty("number", fmt.Sprint(n))
		stage.send(message)
	}
	return facts{"deliveries": deliveries.await(3)}
}

// Every other message is refused once.
func playRetrySuccess(stage *stage) facts {
	stage.prepareRetries()
	deliveries := stage.consume("1", all, newDeliveries(func(message *primitive.MessageExt) bool {
		return strings.HasSuffix(string(message.Body), "odd") && message.ReconsumeTimes == 0
	}))
	for n := 0; n < 6; n++ {
		message := stage.message(fmt.Sprintf("%d %s", n, []string{"even", "odd"}[n%2]))
		stage.send(message.WithTag(fmt.Sprintf("tag%d", n)))
	}
	return facts{"deliveries": deliveries.await(9)}
}

func playDeadLetter(stage *stage) facts {
	stage.prepareRetries()
	deliveries := stage.consume("1", all, newDeliveries(func(message *primitive.MessageExt) bool {
		return string(message.Body) == "bad"
	}), consumer.WithMaxReconsumeTimes(2))
	bad := stage.message("bad").WithTag("tag")
	bad.WithProperty("colour", "red")
	stage.send(bad)
	stage.send(stage.message("good").WithTag("tag"))
	delivered := deliveries.await(4)
	return facts{"deliveries": delivered, "dead": stage.stored("%DLQ%"+stage.group, 1)}
}

// Levels 1 and 2 and none, sent in the order in which they must not arrive.
func playDelayLevel(stage *stage) facts {
	deliveries := stage.consume("1", all, newDeliveries(nil))
	ids := []string{}
	for level := 2; level >= 0; level-- {
		message := stage.message(fmt.Sprintf("level %d", level)).WithTag("tag")
		if level > 0 {
			message.WithDelayTimeLevel(level)
		}
		ids = append(ids, stage.send(message).MsgID)
	}
	return facts{"ids": ids, "deliveries": deliveries.await(3)}
}

// Polls and acknowledges, then pulls one queue from its second message on.
func playPull(stage *stage) facts {
	for n := 0; n < many; n++ {
		stage.send(stage.message(fmt.Sprintf("message %d", n)))
	}
	puller := required(rocketmq.NewPullConsumer(
		consumer.WithGroupName(stage.group),
		consumer.WithInstance(stage.topic),
		consumer.WithNsResolver(stage.resolver),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)))
	must(puller.Subscribe(stage.topic, all))
	must(puller.Start())
	polled := []facts{}
	await(func() bool {
		request, err := puller.Poll(context.Background(), 200*time.Millisecond)
		if err == nil {
			for _, message := range request.GetMsgList() {
				polled = append(polled, factsOfMessage(message))
			}
			puller.ACK(context.Background(), request, consumer.ConsumeSuccess)
		}
		return len(polled) >= many
	})
	queues := stage.queues(stage.topic)
	committed := map[string]int64{}
	for _, queue := range queues {
		committed[fmt.Sprint(queue.QueueId)] = required(puller.CurrentOffset(queue))
	}
	must(puller.Shutdown())
	assigned := []facts{}
	result := required(stage.reader(stage.topic).PullFrom(context.Background(), queues[0], 1, 32))
	for _, message := range result.GetMessageExts() {
		assigned = append(assigned, factsOfMessage(message))
	}
	return facts{"polled": polled, "committed": committed, "assigned": assigned}
}

func playFromFirst(stage *stage) facts {
	stage.sendThree("before")
	deliveries := stage.consume("1", all, newDeliveries(nil))
	stage.sendThree("after")
	return facts{"deliveries": deliveries.await(2 + 6)}
}

// The client asks for the end of a queue when it takes it, so that has to be awaited.
func playFromLast(stage *stage) facts {
	stage.sendThree("before")
	deliveries := stage.consume("1", all, newDeliveries(nil),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromLastOffset))
	time.Sleep(2 * time.Second)
	stage.sendThree("after")
	return facts{"deliveries": deliveries.await(3)}
}

func (s *stage) sendThree(word string) {
	for n := 0; n < 3; n++ {
		s.send(s.message(fmt.Sprintf("%s %d", word, n)))
	}
}
