"""A third corpus for the secret redactor, written without sight of the redactor.

``SECRETS`` maps a category to pairs of a template and a value. ``template.format(value)`` gives
the line as a person or a coding agent would type or see it, and nothing of the value may be left
after redaction. Literal braces in a template are doubled. ``HARMLESS`` maps a category to lines
which look similar, contain no secret, and should stay as they are.

Every value is made up. Values with a well-known token shape are put together from pieces when the
module is loaded, so that no line of this file looks like a real token.
"""

import base64
import hashlib
import string

_UPPER = string.ascii_uppercase
_LOWER = string.ascii_lowercase
_DIGITS = string.digits
_ALNUM = _UPPER + _LOWER + _DIGITS
_URLSAFE = _ALNUM + "-_"
_BASE64 = _ALNUM + "+/"
_HEX = "0123456789abcdef"


def _chars(alphabet: str, length: int, seed: str) -> str:
    """Return ``length`` characters of ``alphabet``, always the same ones for the same seed."""
    out: list[str] = []
    block = 0
    while len(out) < length:
        digest = hashlib.sha256(f"third/{seed}/{block}".encode()).digest()
        out.extend(alphabet[byte % len(alphabet)] for byte in digest)
        block += 1
    return "".join(out[:length])


def _b64(text: str) -> str:
    """Return the Base64 form of a text."""
    return base64.b64encode(text.encode()).decode()


def _b64url(text: str) -> str:
    """Return the unpadded URL-safe Base64 form of a text."""
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _github(seed: str) -> str:
    return "gh" + "p_" + _chars(_ALNUM, 36, seed)


def _gitlab(seed: str) -> str:
    return "gl" + "pat-" + _chars(_URLSAFE, 20, seed)


def _openai(seed: str) -> str:
    return "sk" + "-proj-" + _chars(_ALNUM, 48, seed)


def _anthropic(seed: str) -> str:
    return "sk" + "-ant-" + "api03-" + _chars(_URLSAFE, 93, seed) + "AA"


def _aws_id(seed: str) -> str:
    return "AK" + "IA" + _chars(_UPPER + "234567", 16, seed)


def _aws_secret(seed: str) -> str:
    return _chars(_BASE64, 40, seed)


def _slack(seed: str) -> str:
    digits = _chars("123456789", 12, seed + "a") + "-" + _chars("123456789", 13, seed + "b")
    return "xo" + "xb-" + digits + "-" + _chars(_ALNUM, 24, seed)


def _stripe(seed: str) -> str:
    return "sk" + "_live_" + _chars(_ALNUM, 24, seed)


def _npm(seed: str) -> str:
    return "np" + "m_" + _chars(_ALNUM, 36, seed)


def _pypi(seed: str) -> str:
    return "py" + "pi-" + "AgEIcHlwaS5vcmc" + _chars(_URLSAFE, 120, seed)


def _google(seed: str) -> str:
    return "AI" + "za" + _chars(_URLSAFE, 35, seed)


def _hugging_face(seed: str) -> str:
    return "h" + "f_" + _chars(_UPPER + _LOWER, 34, seed)


def _sendgrid(seed: str) -> str:
    return "S" + "G." + _chars(_URLSAFE, 22, seed + "a") + "." + _chars(_URLSAFE, 43, seed + "b")


def _jwt(seed: str) -> str:
    head = _b64url('{"alg":"HS256","typ":"JWT"}')
    body = _b64url('{"sub":"4711","name":"' + seed + '","iat":1714000000}')
    return head + "." + body + "." + _chars(_URLSAFE, 43, seed)


def _pem_body(lines: int, seed: str) -> str:
    """Return the body of a PEM block, lines of 64 characters joined by newlines."""
    return "\n".join(_chars(_BASE64, 64, f"{seed}/{line}") for line in range(lines))


def _pem(kind: str) -> str:
    """Return a template of a PEM block of a private key of this kind."""
    label = (kind + " " if kind else "") + "PRIVATE" + " KEY"
    dashes = "-" * 5
    return f"{dashes}BEGIN {label}{dashes}\n{{}}\n{dashes}END {label}{dashes}"


def _split(token: str, at: int, between: str) -> str:
    """Return the token with something put in before its character ``at``."""
    return token[:at] + between + token[at:]


SECRETS: dict[str, list[tuple[str, str]]] = {
    "environment variables": [
        ("export GITHUB_TOKEN={}", _github("env1")),
        ("export DB_PASSWORD='{}'", "gr8!Lemon$Tree"),
        ("PGPASSWORD={} psql -h db.internal -U app -d orders -c 'select 1'", "quietharbour"),
        ('$ OPENAI_API_KEY="{}" python main.py', _openai("env2")),
        ("AWS_SECRET_ACCESS_KEY={}", _aws_secret("env3")),
        ("docker run --rm -e POSTGRES_PASSWORD={} -p 5432:5432 postgres:16", "letmein2024"),
        ('$env:AZURE_CLIENT_SECRET = "{}"', "q7x8Q~" + _chars(_URLSAFE, 34, "env4")),
        ('setx ANTHROPIC_API_KEY "{}"', _anthropic("env5")),
        ("set SMTP_PASS={}", "Tulpen#44"),
        ("set -gx NPM_TOKEN {}", _npm("env6")),
        ("env RESTIC_PASSWORD={} restic -r /srv/backup snapshots", "oldmillpond"),
        ('declare -x VAULT_TOKEN="{}"', "hv" + "s." + _chars(_ALNUM, 24, "env7")),
        ("BORG_PASSPHRASE='{}' borg list /mnt/borg", "correct horse battery staple"),
    ],
    "command-line options": [
        ("mysql -u root -p{} shop < dump.sql", "Winter2023!"),
        ("mysqldump --user=backup --password={} --all-databases > all.sql", "mondaymorning"),
        ("sshpass -p '{}' ssh deploy@10.0.0.12 uptime", "d3pl0y&run"),
        ("curl -u admin:{} https://jenkins.example.com/job/build/api/json", "butterflies"),
        ("curl --user 'ci-bot:{}' -T app.jar https://nexus.example.com/repo/", "N3xus_up!"),
        ("docker login registry.example.com -u robot -p {}", "r0b0tarm77"),
        ("redis-cli -h cache.internal -a {} ping", "foxglove91"),
        ("gpg --batch --yes --passphrase '{}' -d backup.tar.gpg", "seven grey geese"),
        ("openssl pkcs12 -in site.p12 -nodes -passin pass:{}", "exportme8"),
        ("keytool -list -keystore app.jks -storepass {}", "changeit99"),
        ("wget --user=jo --password='{}' https://files.example.com/a.zip", "a b&c%d"),
        ("smbclient //nas/share -U 'maria%{}' -c ls", "kitchentable"),
        ("mosquitto_pub -h broker -u sensor -P {} -t home/temp -m 21", "S3nsor-Pw"),
        ("htpasswd -b /etc/nginx/.htpasswd alice {}", "raspberry12"),
        ("sqlcmd -S localhost -U sa -P '{}' -Q 'SELECT 1'", "Str0ng!Passw0rd"),
        (
            "kubectl create secret generic db --from-literal=password={}",
            "plumbersdelight",
        ),
        ("mongosh --host mongo -u root -p {} --authenticationDatabase admin", "m0ng0ose"),
        ("sudo tailscale up --authkey={}", "ts" + "key-auth-" + _chars(_ALNUM, 30, "opt1")),
        ("huggingface-cli login --token {}", _hugging_face("opt3")),
        ("vault kv put secret/shop db_password={} db_user=shop", "Vlt?9pear"),
        ("xfreerdp /v:win10 /u:admin /p:{} /cert:ignore", "Rdp!2022x"),
    ],
    "settings commands": [
        ("aws configure set aws_secret_access_key {} --profile prod", _aws_secret("set1")),
        ("npm config set //registry.npmjs.org/:_authToken {}", _npm("set2")),
        ("git config --global github.token {}", _github("set3")),
        ("composer config http-basic.repo.example.com ci {}", "comp0ser-pw"),
        ("heroku config:set JWT_SECRET={} -a my-shop", "lighthousekeeper"),
        ('dotnet user-secrets set "Smtp:Password" "{}"', "m@ilbox3"),
        ("pulumi config set --secret dbPassword {}", "Pul-umi_55"),
        ("ngrok config add-authtoken {}", "2" + _chars(_ALNUM, 48, "set5")),
        ("127.0.0.1:6379> CONFIG SET requirepass {}", "redisonlyforme"),
        ("kubectl config set-credentials ci --token={}", _jwt("set6")),
        ('fly secrets set STRIPE_SECRET_KEY="{}"', _stripe("set7")),
    ],
    "configuration files": [
        ("[database]\nhost = db.internal\nuser = app\npassword = {}", "crimsonfield"),
        ('[api]\nurl = "https://api.example.com"\napi_key = "{}"', _chars(_HEX, 32, "cfg1")),
        ("  db:\n    username: shop\n    password: {}\n    pool: 5", "sh0p!keeper"),
        ('  "client_secret": "{}",', "GOC" + "SPX-" + _chars(_URLSAFE, 28, "cfg2")),
        ('{{"user": "bob", "password": "{}", "remember": true}}', "tall-Tree7"),
        ("    <password>{}</password>", "mavenrepo1"),
        ('<add key="SmtpPassword" value="{}" />', "Sm+p=2020"),
        ("spring.datasource.password={}", "springtime"),
        ("MAIL_PASSWORD={}\nMAIL_ENCRYPTION=tls", "f8kd!2ms"),
        ("//registry.npmjs.org/:_authToken={}", _npm("cfg3")),
        ("[pypi]\nusername = __token__\npassword = {}", _pypi("cfg7")),
        ("machine api.github.com login octo password {}", _github("cfg4")),
        ("      - MYSQL_ROOT_PASSWORD={}", "toor!toor"),
        (".env:7:SESSION_SECRET={}", "keyboardcatcher"),
        ("requirepass {}", "cacheonly2021"),
        ('    psk="{}"\n    key_mgmt=WPA-PSK', "homesweethome5"),
    ],
    "web addresses": [
        ("DATABASE_URL=postgres://app:{}@db.internal:5432/orders", "Or4nge-juice"),
        ("git clone https://oauth2:{}@gitlab.example.com/team/app.git", _gitlab("url1")),
        ("origin  https://{}@github.com/acme/site.git (fetch)", _github("url2")),
        ("redis://:{}@cache.internal:6379/0", "blueberries"),
        ("mongodb+srv://root:{}@cluster0.example.net/?retryWrites=true", "m%40ngo77"),
        ("amqp://guest:{}@rabbit:5672/%2F", "hopalong"),
        ("GET /v1/data?format=json&api_key={} HTTP/1.1", _chars(_ALNUM, 32, "url3")),
        ("https://api.example.com/login?user=jo&password={}&next=%2F", "p%40ssw%21rd"),
        ("https://app.example.com/callback#access_token={}&expires_in=3600", _jwt("url4")),
        ("https://maps.googleapis.com/maps/api/geocode/json?key={}", _google("url5")),
        (
            "https://bucket.s3.amazonaws.com/a.zip?X-Amz-Expires=900&X-Amz-Signature={}",
            _chars(_HEX, 64, "url6"),
        ),
    ],
    "SQL": [
        ("CREATE USER app WITH PASSWORD '{}';", "creatorspet"),
        ("ALTER ROLE reporting PASSWORD '{}' VALID UNTIL 'infinity';", "rep0rt$$now"),
        ("CREATE USER 'web'@'%' IDENTIFIED BY '{}';", "W3b#user"),
        ("SET PASSWORD FOR 'root'@'localhost' = PASSWORD('{}');", "rootbeer"),
        ("UPDATE users SET password = '{}' WHERE email = 'jo@example.com';", "newstart22"),
    ],
    "source code": [
        ('API_KEY = "{}"', _chars(_ALNUM, 40, "src1")),
        ("client = OpenAI(api_key='{}')", _openai("src2")),
        ('conn = psycopg2.connect(host="db", user="app", password="{}")', "purplehat"),
        ("const stripe = require('stripe')('{}');", _stripe("src3")),
        ('  private static final String PASSWORD = "{}";', "J4va!bean"),
        ("const config = {{ user: 'root', password: '{}', port: 3306 }};", "marzipan8"),
        ('os.environ["SLACK_BOT_TOKEN"] = "{}"', _slack("src4")),
        ('    auth=HTTPBasicAuth("admin", "{}"),', "basic-Auth1"),
        ("$db_pass = '{}';", "phpforever"),
        ('let secret_key: &str = "{}";', "rusty+nail=9"),
        ("define( 'DB_PASSWORD', '{}' );", "W0rdPr3ss!"),
    ],
    "HTTP headers": [
        ("Authorization: Bearer {}", _jwt("hdr1")),
        ("curl -H 'Authorization: token {}' https://api.github.com/user", _github("hdr2")),
        ("> Authorization: Basic {}", _b64("admin:winterjasmine")),
        ('-H "X-API-Key: {}" \\', _chars(_ALNUM, 32, "hdr3")),
        ('headers = {{"Authorization": "Bearer {}"}}', _chars(_URLSAFE, 40, "hdr4")),
        ("< set-cookie: session_token={}; Path=/; HttpOnly", _chars(_ALNUM, 32, "hdr5")),
        ("PRIVATE-TOKEN: {}", _gitlab("hdr6")),
        ("Proxy-Authorization: Basic {}", _b64("proxy:Squ1d!")),
    ],
    "sentences": [
        ("the db password is {} please run the migration", "tangerine"),
        ("Log in as admin with password {} and check the dashboard.", "Dash!b0ard"),
        ("here is my github token: {} - push the branch for me", _github("say1")),
        ("use the api key {} for the weather service", _chars(_HEX, 32, "say2")),
        ("username: test@example.com password: {}", "Testing123!"),
        ("My OpenAI key is {}, put it in the .env", _openai("say3")),
        ("I changed the root password to {} yesterday", "sunflower88"),
        ('The passphrase for the ssh key is "{}".', "slow boat to dover"),
        ("sudo pw: {}", "h4mster!"),
        ("the client secret should be `{}`, not the old one", "aB3~xY.z9-Q7"),
    ],
    "key material": [
        (_pem("RSA"), _pem_body(6, "key1")),
        (_pem("OPENSSH"), "b3BlbnNzaC1rZXktdjEA" + _pem_body(4, "key2")),
        ("$ cat server.key\n" + _pem(""), _pem_body(5, "key3")),
        (
            '"private_key": "' + _pem("").replace("\n", "\\n") + '\\n",',
            _pem_body(4, "key4").replace("\n", "\\n"),
        ),
        ("[Interface]\nPrivateKey = {}\nAddress = 10.8.0.2/24", _chars(_BASE64, 43, "key5") + "="),
        ("# public key: age1xyz\n{}", "AGE-SECRET" + "-KEY-1" + _chars(_UPPER, 58, "key6")),
    ],
    "disguised tokens": [
        ("token seen: {}", _split(_github("dis1"), 2, "\u200b")),
        ("pasted {} from the wiki", _split(_github("dis2"), 17, "\u2060")),
        ("key {} ok", _split(_aws_id("dis3"), 9, "\u00ad")),
        ("\x1b[32m+ {}\x1b[0m", _split(_github("dis4"), 4, "\x1b[1;31m")),
        ("echo {} | base64 -d", _b64(_github("dis6"))),
        ("data:\n  value: {}", _b64(_sendgrid("dis7"))),
        ("blob={}", _b64(_slack("dis8") + "\n")),
    ],
}

HARMLESS: dict[str, list[str]] = {
    "environment variables": [
        "export GITHUB_TOKEN=$(gh auth token)",
        "export DB_PASSWORD=$PROD_DB_PASSWORD",
        'PGPASSWORD="${DB_PASS}" psql -h localhost -U app',
        "docker run -e POSTGRES_PASSWORD -e PGDATA=/data postgres:16",
        "GITHUB_TOKEN: ${{ secrets.GITHUB_TOKEN }}",
        "OPENAI_API_KEY=********",
        "MAX_TOKENS=4096",
        "POSTGRES_PASSWORD_FILE=/run/secrets/db_password",
        "export SSH_AUTH_SOCK=/tmp/ssh-agent.sock",
        "TOKENIZERS_PARALLELISM=false python train.py",
        'test -n "$API_TOKEN" || echo "API_TOKEN is not set"',
    ],
    "command-line options": [
        "mkdir -p build/release/assets",
        "docker run -p 8080:80 --name web nginx",
        "ssh -p 2222 deploy@example.com",
        "mysql -u root -p shop",
        "mysql -h db -P 3306 -u app --database=shop",
        "cp -a src/ dest/",
        "grep -rn password src/ --include='*.py'",
        "curl -u admin https://jenkins.example.com/",
        'curl -u "$USER:$PASS" https://nexus.example.com/',
        "docker login ghcr.io -u robot --password-stdin",
        "ssh -i ~/.ssh/id_ed25519 git@github.com",
        "ssh-keygen -t ed25519 -C jo@example.com",
        "pytest -k test_password_reset -p no:cacheprovider",
        "git commit -a -m 'rotate token handling'",
        "openssl rsa -in server.key -passin env:KEY_PASS -out plain.key",
        "kubectl get secret db-credentials -o yaml",
        "llm-cli --max-tokens 2000 --temperature 0.2",
        "ansible-playbook site.yml --vault-password-file ~/.vault_pass",
    ],
    "settings commands": [
        "git config --global credential.helper store",
        "git config user.signingkey ~/.ssh/id_ed25519.pub",
        "aws configure set region eu-central-1 --profile prod",
        "aws configure get aws_access_key_id",
        "kubectl config set-context --current --namespace=auth",
        "heroku config:unset JWT_SECRET -a my-shop",
        "gh secret list --repo acme/site",
        "passwd --lock deploy",
    ],
    "configuration files": [
        "password = ${DB_PASSWORD}",
        "    password: {{ vault_db_password }}",
        'api_key = "<your-api-key>"',
        '"requires_password": true,',
        '  "type": "password",',
        "    secretName: tls-certificate",
        "            secretKeyRef:\n              name: db\n              key: password",
        "spring.datasource.password=${SPRING_DB_PW}",
        "token_expiry_seconds: 3600",
        "PasswordAuthentication no",
        "IdentityFile ~/.ssh/work_key",
        "ssl_certificate_key /etc/nginx/ssl/site.key;",
        "  key: ${{ runner.os }}-pip-${{ hashFiles('requirements.txt') }}",
    ],
    "web addresses": [
        "git clone https://github.com/acme/token-service.git",
        "https://docs.example.com/auth/tokens?page=2&sort=desc",
        "https://example.com/reset-password?step=2",
        "postgres://app:${DB_PASS}@db.internal:5432/orders",
        "http://localhost:8080/login?next=/account/security",
        "https://example.com/search?q=forgot+password",
        "https://api.example.com/v1?api_key=YOUR_API_KEY",
    ],
    "SQL": [
        "SELECT id, password_hash FROM users WHERE email = $1;",
        "ALTER TABLE users ADD COLUMN api_token VARCHAR(64) NOT NULL;",
        "UPDATE users SET password = ? WHERE id = ?;",
        "CREATE TABLE secrets (id SERIAL PRIMARY KEY, name TEXT);",
        "ALTER TABLE orders ADD FOREIGN KEY (user_id) REFERENCES users(id);",
    ],
    "source code": [
        'password = os.environ["DB_PASSWORD"]',
        "def check_password(user: User, password: str) -> bool:",
        "if password != confirm_password:",
        'token = request.headers.get("X-Token")',
        "const token = await getAccessToken(clientId);",
        'parser.add_argument("--password", help="password of the database")',
        "for key, value in settings.items():",
        "import secrets; print(secrets.token_hex(16))",
        'raise ValueError("password must not be empty")',
        "password: Optional[str] = None",
        "api_key = getpass.getpass('API key: ')",
        "const { password, ...rest } = user;",
        'sorted(rows, key=lambda row: row["name"])',
        "expect(screen.getByLabelText('Password')).toBeVisible();",
    ],
    "HTTP headers": [
        "Authorization: Bearer $TOKEN",
        'curl -H "Authorization: Bearer ${API_TOKEN}" https://api.example.com/me',
        'WWW-Authenticate: Basic realm="Restricted Area"',
        "> Authorization: Bearer ****",
        "access-control-allow-headers: Authorization, X-API-Key",
        "< HTTP/1.1 401 Unauthorized",
        "x-ratelimit-remaining-tokens: 39500",
    ],
    "sentences": [
        "The password field is empty when the page loads, please fix it.",
        "please add a test for the token refresh",
        "the password is stored in the vault, ask ops for it",
        "The token is expired, so the request fails with 401.",
        "Rename the variable secret to shared_secret everywhere.",
        "never print passwords or tokens to the log",
        "The context window has 200000 tokens, 31245 tokens used.",
        "Is the api key required for the local server?",
        "I forgot my password, how do I reset it?",
        "The key point is that credentials are loaded lazily.",
        "Password must be at least 12 characters long.",
    ],
    "test and tool output": [
        "tests/test_auth.py::test_wrong_password_is_rejected PASSED [ 42%]",
        "FAILED tests/test_token.py::test_refresh - AssertionError: 401 != 200",
        "[sudo] password for jo:",
        "Enter passphrase for key '/home/jo/.ssh/id_rsa':",
        'psql: error: FATAL:  password authentication failed for user "app"',
        "remote: Invalid username or password.",
        "drwx------ 2 jo jo 4096 Apr  3 10:12 secrets",
        "SyntaxError: Unexpected token '}' in JSON at position 118",
        "Tokens: 1,245 in, 388 out; cost $0.02",
    ],
    "hashes, ids and paths": [
        "commit 5f2a9c0d7be1438896aa10cf3d4e77b2c9018e6d",
        "sha256:9d1f3c5be0a7248866cd1e90f37ab2459d1f3c5be0a7248866cd1e90f37ab245  app.tar.gz",
        "request id 3f0c9a52-7d1e-4b86-9a0f-2c55d7e81b34 finished in 83 ms",
        "/home/jo/.config/app/credentials.json",
        "node_modules/js-tokens/index.js",
        "SHA256:Qm0u7yG1x4VdT2sZc9LkR8eWb5NhJ3aPfXo6iYtUwEE jo@laptop (ED25519)",
        '"integrity": "sha512-Zk3b8Qh1tW0mUe5yRj7pXcVn2sLd9aGf4oKi6wTqB1E=="',
    ],
}
