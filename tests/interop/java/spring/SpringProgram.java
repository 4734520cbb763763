import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.LinkedHashMap;
import java.util.Map;
import org.springframework.boot.ApplicationRunner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;

/**
 * A Spring Boot program that sends and receives in every way that RocketMQTemplate and the listeners
 * of the starter have.
 *
 * Arguments: namesrvAddr prefix. The topics exist; their names begin with the prefix. For each job it
 * prints one line of JSON with "facts" or "failure".
 */
@Configuration
@EnableAutoConfiguration
@Import({SpringListeners.class, SpringTransactions.class, SpringJobs.class})
public class SpringProgram {
    public static void main(String[] args) {
        SpringApplication application = new SpringApplication(SpringProgram.class);
        application.setDefaultProperties(Map.of(
            "rocketmq.name-server", args[0],
            "rocketmq.producer.group", args[1] + "_producers",
            "rocketmq.producer.send-message-timeout", "10000",
            "program.prefix", args[1],
            "spring.main.banner-mode", "off"));
        try (ConfigurableApplicationContext context = application.run()) {
            System.out.println("done");
        }
        System.exit(0);
    }

    @Bean
    ApplicationRunner runner(SpringJobs jobs) {
        return arguments -> jobs.all().forEach(SpringProgram::run);
    }

    private static void run(String name, SpringJobs.Job job) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("cell", name);
        long begin = System.nanoTime();
        try {
            line.put("facts", job.run());
        } catch (Throwable failure) {
            line.put("failure", failure.toString());
            failure.printStackTrace();
        }
        line.put("seconds", (System.nanoTime() - begin) / 1e9);
        try {
            System.out.println(new ObjectMapper().writeValueAsString(line));
        } catch (Exception impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
