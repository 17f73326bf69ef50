import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import javax.security.auth.x500.X500Principal;

/** Reads names in DER, a line of base64 each, and writes each as Kafka's principals have it, as base64 of UTF-8, or "refused". */
public class DistinguishedNames {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(write(Base64.getDecoder().decode(line)));
        }
    }

    private static String write(byte[] name) {
        try {
            byte[] text = new X500Principal(name).getName().getBytes(StandardCharsets.UTF_8);
            return Base64.getEncoder().encodeToString(text);
        } catch (IllegalArgumentException refused) {
            return "refused";
        }
    }
}
