import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Arguments: cases of "brokers|queues|clients", names separated by commas. Prints for each case, strategy and
 * client one line "case strategy client: broker/queue …". Rooms are what stands before the "@" of a name.
 */
public class Allocations {
    public static void main(String[] args) {
        for (int number = 0; number < args.length; number++) {
            String[] parts = args[number].split("\\|");
            List<String> clients = Arrays.asList(parts[2].split(","));
            Collections.sort(clients);
            List<MessageQueue> queues = new ArrayList<>();
            for (String broker : parts[0].split(",")) {
                for (int queue = 0; queue < Integer.parseInt(parts[1]); queue++) {
                    queues.add(new MessageQueue("T", broker, queue));
                }
            }
            Collections.sort(queues);
            print(number, "average", new AllocateMessageQueueAveragely(), queues, clients);
            print(number, "circle", new AllocateMessageQueueAveragelyByCircle(), queues, clients);
            print(number, "hash", new AllocateMessageQueueConsistentHash(), queues, clients);
            AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
            rooms.setConsumeridcs(new HashSet<>(Arrays.asList("x", "y")));
            print(number, "rooms", rooms, queues, clients);
            print(number, "nearby", nearby(), queues, clients);
        }
        System.exit(0);
    }

    private static AllocateMessageQueueStrategy nearby() {
        return new AllocateMachineRoomNearby(
            new AllocateMessageQueueAveragely(), new AllocateMachineRoomNearby.MachineRoomResolver() {
                @Override
                public String brokerDeployIn(MessageQueue queue) {
                    return queue.getBrokerName().split("@")[0];
                }

                @Override
                public String consumerDeployIn(String client) {
                    return client.split("@")[0];
                }
            });
    }

    private static void print(int number, String name, AllocateMessageQueueStrategy strategy,
        List<MessageQueue> queues, List<String> clients) {
        for (String client : clients) {
            List<MessageQueue> mine = strategy.allocate("G", client, queues, clients);
            System.out.println(number + " " + name + " " + client + ":" + mine.stream()
                .map(queue -> " " + queue.getBrokerName() + "/" + queue.getQueueId())
                .collect(Collectors.joining()));
        }
    }
}
