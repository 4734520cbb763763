package main

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// Does as the body says; of those that it did not know, it then commits number 0.
type verdicts struct {
	lock    sync.Mutex
	checked []string
}

func (v *verdicts) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	switch strings.Fields(string(message.Body))[0] {
	case "commit":
		return primitive.CommitMessageState
	case "rollback":
		return primitive.RollbackMessageState
	}
	return primitive.UnknowState
}

func (v *verdicts) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	v.lock.Lock()
	defer v.lock.Unlock()
	body := string(message.Body)
	v.checked = append(v.checked, body)
	if body == "unknown 0" || strings.HasPrefix(body, "commit") {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

func (v *verdicts) all() []string {
	v.lock.Lock()
	defer v.lock.Unlock()
	return append([]string{}, v.checked...)
}

func playTransaction(stage *stage) facts {
	deliveries := stage.consume("1", all, newDeliveries(nil))
	listener := &verdicts{}
	sender := required(rocketmq.NewTransactionProducer(listener,
		producer.WithGroupName(stage.group+"_producers"),
		producer.WithInstanceName(stage.topic+"_producer"),
		producer.WithNsResolver(stage.resolver),
		producer.WithSendMsgTimeout(10*time.Second)))
	must(sender.Start())
	stage.closings = append(stage.closings, sender.Shutdown)
	sent := []facts{}
	for _, body := range []string{
		"unknown 0", "unknown 1", "commit 0", "rollback 0", "commit 1", "rollback 1",
	} {
		message := stage.message(body).WithTag("tag")
		result := required(sender.SendMessageInTransaction(context.Background(), message))
		sent = append(sent, facts{"status": statuses[result.Status], "id": result.MsgID})
	}
	await(func() bool { return len(listener.all()) >= 2 })
	delivered := deliveries.await(3)
	return facts{"sent": sent, "checked": listener.all(), "deliveries": delivered}
}

// Replies come to a client that the broker knows by a heartbeat. It sends the first after a second, to
// the brokers it has sent to, and the next only after half a minute.
func playRequest(stage *stage) facts {
	requester := stage.newProducer("requesters", producer.NewRoundRobinQueueSelector())
	stage.closings = append(stage.closings, requester.Shutdown)
	required(requester.SendSync(context.Background(), stage.message("silence")))
	consuming := required(rocketmq.NewPushConsumer(
		consumer.WithGroupName(stage.group),
		consumer.WithInstance(stage.topic),
		consumer.WithNsResolver(stage.resolver),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset)))
	must(consuming.Subscribe(stage.topic, all, stage.reply))
	must(consuming.Start())
	stage.closings = append(stage.closings, consuming.Shutdown)
	reply := stage.request(requester, "first")
	later := make(chan *primitive.Message, 1)
	must(requester.RequestAsync(context.Background(), patience/3,
		func(_ context.Context, message *primitive.Message, err error) {
			if err == nil && message != nil {
				later <- message
			}
		}, stage.message("second")))
	second := ""
	select {
	case message := <-later:
		second = string(message.Body)
	case <-time.After(patience / 3):
	}
	_, silence := requester.Request(context.Background(), time.Second, stage.message("silence"))
	return facts{
		"reply":     string(reply.Body),
		"colour":    reply.GetProperty("colour"),
		"later":     second,
		"timed_out": silence != nil,
	}
}

// Asks again where the broker did not know the client yet.
func (s *stage) request(requester rocketmq.Producer, body string) *primitive.Message {
	for tries := 0; ; tries++ {
		reply, err := requester.Request(context.Background(), 2*time.Second, s.message(body))
		if err == nil {
			return reply
		}
		if tries == 10 {
			panic(err)
		}
	}
}

func (s *stage) reply(
	_ context.Context, messages ...*primitive.MessageExt,
) (consumer.ConsumeResult, error) {
	for _, message := range messages {
		if string(message.Body) == "silence" {
			continue
		}
		reply, err := consumer.CreateReplyMessage(message, nil)
		if err != nil {
			return consumer.ConsumeSuccess, err
		}
		// The client leaves it out.
		reply.Body = []byte("re: " + string(message.Body))
		reply.WithProperty("colour", "red")
		if _, err = s.producer.SendSync(context.Background(), reply); err != nil {
			return consumer.ConsumeSuccess, err
		}
	}
	return consumer.ConsumeSuccess, nil
}
