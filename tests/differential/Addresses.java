import java.net.InetAddress;
import java.net.UnknownHostException;

/** What Java makes of names of addresses: a line for each argument, `-` where it knows none. */
public class Addresses {
    public static void main(String[] names) {
        for (String name : names) {
            try {
                System.out.println(InetAddress.getByName(name).getHostAddress());
            } catch (UnknownHostException unknown) {
                System.out.println("-");
            }
        }
    }
}
