package main

import (
	"context"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const (
	patience = 45 * time.Second
	settling = 300 * time.Millisecond
)

type facts map[string]any

// What all cells share: a producer that sends to the queue of the message or to the next one, and
// the look-up of queues.
type clients struct {
	resolver primitive.NsResolver
	prefix   string
	producer rocketmq.Producer
	admin    admin.Admin
}

func newClients(namesrv string, prefix string) *clients {
	resolver := primitive.NewPassthroughResolver([]string{namesrv})
	c := &clients{resolver: resolver, prefix: prefix}
	c.producer = c.newProducer("producers", &manualOrNext{next: producer.NewRoundRobinQueueSelector()})
	c.admin = required(admin.NewAdmin(admin.WithResolver(resolver)))
	return c
}

func (c *clients) newProducer(name string, selector producer.QueueSelector) rocketmq.Producer {
	made := required(rocketmq.NewProducer(
		producer.WithGroupName(c.prefix+"_"+name),
		producer.WithInstanceName(c.prefix+"_"+name),
		producer.WithNsResolver(c.resolver),
		producer.WithSendMsgTimeout(10*time.Second),
		producer.WithQueueSelector(selector)))
	must(made.Start())
	return made
}

type manualOrNext struct {
	next producer.QueueSelector
}

func (s *manualOrNext) Select(
	message *primitive.Message, queues []*primitive.MessageQueue, last string,
) *primitive.MessageQueue {
	if message.Queue != nil {
		return message.Queue
	}
	return s.next.Select(message, queues, last)
}

// What one cell plays on: a topic, a group, and consumers that end with it.
type stage struct {
	*clients
	topic    string
	group    string
	closings []func() error
}

func newStage(clients *clients, name string) *stage {
	topic := clients.prefix + "_" + name
	return &stage{clients: clients, topic: topic, group: topic + "_group"}
}

func (s *stage) close() {
	for _, closing := range s.closings {
		_ = closing()
	}
}

func (s *stage) message(body string) *primitive.Message {
	return primitive.NewMessage(s.topic, []byte(body))
}

func (s *stage) send(message *primitive.Message) *primitive.SendResult {
	return required(s.producer.SendSync(context.Background(), message))
}

// The queues of a topic by number, once its route is known.
func (s *stage) queues(topic string) []*primitive.MessageQueue {
	var found []*primitive.MessageQueue
	await(func() bool {
		queues, err := s.admin.FetchPublishMessageQueues(context.Background(), topic)
		found = queues
		return err == nil && len(found) > 0
	})
	sort.Slice(found, func(i, j int) bool { return found[i].QueueId < found[j].QueueId })
	return found
}

// A reader of queues; it has to subscribe to a topic that exists.
func (s *stage) reader(topic string) rocketmq.PullConsumer {
	made := required(rocketmq.NewPullConsumer(
		consumer.WithGroupName(s.group+"_readers"),
		consumer.WithInstance(s.topic+"_reader"),
		consumer.WithNsResolver(s.resolver)))
	must(made.Subscribe(topic, all))
	must(made.Start())
	s.closings = append(s.closings, made.Shutdown)
	return made
}

// What the queues of a topic hold, once they hold so many.
func (s *stage) stored(topic string, count int) []facts {
	return s.storedIn(topic, s.queues(topic), count)
}

// What some queues hold. A pull at the end of a queue takes 20 s, so an empty queue delays the rest.
func (s *stage) storedIn(topic string, queues []*primitive.MessageQueue, count int) []facts {
	found := []facts{}
	positions := map[int]int64{}
	reader := s.reader(topic)
	await(func() bool {
		for _, queue := range queues {
			result, err := reader.PullFrom(context.Background(), queue, positions[queue.QueueId], 32)
			if err != nil || result.Status != primitive.PullFound {
				continue
			}
			positions[queue.QueueId] = result.NextBeginOffset
			for _, message := range result.GetMessageExts() {
				found = append(found, factsOfMessage(message))
			}
		}
		return len(found) >= count
	})
	return found
}

// A consumer of the topic, from its first message on unless told otherwise, that is started.
func (s *stage) consume(
	instance string, selector consumer.MessageSelector, listener *deliveries, options ...consumer.Option,
) *deliveries {
	all := append([]consumer.Option{
		consumer.WithGroupName(s.group),
		consumer.WithInstance(s.topic + "_" + instance),
		consumer.WithNsResolver(s.resolver),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	}, options...)
	made := required(rocketmq.NewPushConsumer(all...))
	must(made.Subscribe(s.topic, selector, listener.take))
	must(made.Start())
	s.closings = append(s.closings, made.Shutdown)
	return listener
}

// The client looks for new topics and shares queues only every 20 to 30 s, so the retry topic of a
// group, which comes with the first heartbeat, has to be there when its consumer starts.
func (s *stage) prepareRetries() {
	first := newStage(s.clients, strings.TrimPrefix(s.topic, s.prefix+"_"))
	first.consume("first", all, newDeliveries(nil))
	s.queues("%RETRY%" + s.group)
	first.close()
}

var all = consumer.MessageSelector{}

// What was delivered to a listener; what it refuses comes again.
type deliveries struct {
	lock    sync.Mutex
	taken   []facts
	refuse  func(*primitive.MessageExt) bool
	refusal consumer.ConsumeResult
}

func newDeliveries(refuse func(*primitive.MessageExt) bool) *deliveries {
	return &deliveries{taken: []facts{}, refuse: refuse, refusal: consumer.ConsumeRetryLater}
}

func (d *deliveries) take(
	_ context.Context, messages ...*primitive.MessageExt,
) (consumer.ConsumeResult, error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	result := consumer.ConsumeSuccess
	for _, message := range messages {
		d.taken = append(d.taken, factsOfMessage(message))
		if d.refuse != nil && d.refuse(message) {
			result = d.refusal
		}
	}
	return result, nil
}

// All that came, once so many have come and nothing more is likely to.
func (d *deliveries) await(count int) []facts {
	await(func() bool {
		d.lock.Lock()
		defer d.lock.Unlock()
		return len(d.taken) >= count
	})
	time.Sleep(settling)
	d.lock.Lock()
	defer d.lock.Unlock()
	return append([]facts{}, d.taken...)
}

// Waits for it, but not for ever: the facts tell whether it came.
func await(condition func() bool) {
	deadline := time.Now().Add(patience)
	for !condition() && time.Now().Before(deadline) {
		time.Sleep(20 * time.Millisecond)
	}
}

var statuses = map[primitive.SendStatus]string{
	primitive.SendOK:                "SEND_OK",
	primitive.SendFlushDiskTimeout:  "FLUSH_DISK_TIMEOUT",
	primitive.SendFlushSlaveTimeout: "FLUSH_SLAVE_TIMEOUT",
	primitive.SendSlaveNotAvailable: "SLAVE_NOT_AVAILABLE",
}

// The messages of a batch get no unique ids from the client; their ids are their places in the log.
func factsOfResult(result *primitive.SendResult) facts {
	id := result.MsgID
	if id == "" {
		id = result.OffsetMsgID
	}
	return facts{
		"status":    statuses[result.Status],
		"id":        id,
		"offset_id": result.OffsetMsgID,
		"queue":     result.MessageQueue.QueueId,
		"offset":    result.QueueOffset,
	}
}

func factsOfMessage(message *primitive.MessageExt) facts {
	return facts{
		"body":       string(message.Body),
		"topic":      message.Topic,
		"id":         message.MsgId,
		"queue":      message.Queue.QueueId,
		"offset":     message.QueueOffset,
		"tags":       orNull(message.GetTags()),
		"keys":       orNull(message.GetKeys()),
		"reconsumed": message.ReconsumeTimes,
		"born":       message.BornTimestamp,
		"stored":     message.StoreTimestamp,
		"properties": message.GetProperties(),
	}
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}
