"""A second test corpus for the secret redactor, written without knowledge of its rules.

``SECRETS`` maps a category to pairs of a template and a value. ``template.format(value)`` gives
the text as a person or an agent would see it in a terminal, and the value is what must not survive.
``HARMLESS`` maps a category to texts that look similar but hold no secret and must stay unchanged.

All values are made up. Values with the shape of a real token are put together from pieces when
the module is loaded, so that no scanner takes this file for a leak. In the category of disguised
tokens, the value is the token as it stands in the text, with its disguise.
"""

import base64
import hashlib
import string

_ALNUM = string.ascii_letters + string.digits
_BASE64 = _ALNUM + "+/"
_HEX = "0123456789abcdef"
_LOWER_ALNUM = string.ascii_lowercase + string.digits
_URLSAFE = _ALNUM + "-_"


def _chars(seed: str, count: int, alphabet: str = _ALNUM) -> str:
    """Return characters of the alphabet that depend on nothing but the seed."""
    chars: list[str] = []
    block = 0
    while len(chars) < count:
        digest = hashlib.sha256(f"{seed}/{block}".encode()).digest()
        chars.extend(alphabet[byte % len(alphabet)] for byte in digest)
        block += 1
    return "".join(chars[:count])


def _b64(text: str) -> str:
    """Return the text in Base64."""
    return base64.b64encode(text.encode()).decode()


def _segment(text: str) -> str:
    """Return the text as one segment of a JSON web token."""
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _github(seed: str) -> str:
    return "gh" + "p_" + _chars(seed, 36)


def _anthropic(seed: str) -> str:
    return "sk" + "-ant-" + "api03-" + _chars(seed, 93, _URLSAFE) + "AA"


def _openai(seed: str) -> str:
    return "sk" + "-proj-" + _chars(seed, 48)


def _aws_id(seed: str) -> str:
    return "AK" + "IA" + _chars(seed, 16, string.ascii_uppercase + "234567")


def _slack(seed: str) -> str:
    digits = _chars(seed + "/d", 12, "123456789")
    return "xo" + "xb-" + digits + "-" + digits[::-1] + "-" + _chars(seed, 24)


def _gitlab(seed: str) -> str:
    return "gl" + "pat-" + _chars(seed, 20)


def _stripe(seed: str) -> str:
    return "sk" + "_live_" + _chars(seed, 24)


def _npm(seed: str) -> str:
    return "np" + "m_" + _chars(seed, 36)


def _google(seed: str) -> str:
    return "AI" + "za" + _chars(seed, 35, _URLSAFE)


def _jwt(seed: str) -> str:
    head = _segment('{"alg":"HS256","typ":"JWT"}')
    body = _segment('{"sub":"4711","name":"Ida","iat":1718000000}')
    return f"{head}.{body}.{_chars(seed, 43, _URLSAFE)}"


def _pem(kind: str, edge: str) -> str:
    """Return the first or the last line of a key block."""
    return "-----" + edge + " " + kind + "-----"


def _between(text: str, position: int, mark: str) -> str:
    """Return the text with a mark put in at a position."""
    return text[:position] + mark + text[position:]


_RSA = "RSA PRIV" + "ATE KEY"
_PKCS8 = "PRIV" + "ATE KEY"
_OPENSSH = "OPENSSH PRIV" + "ATE KEY"
_EC = "EC PRIV" + "ATE KEY"
_PUBLIC = "PUBLIC KEY"
_CERT = "CERTIFICATE"

SECRETS: dict[str, list[tuple[str, str]]] = {
    "environment variables": [
        ("export DB_PASSWORD={}", "Kranichflug77"),
        ("export GITHUB_TOKEN={}", _github("env-1")),
        ("ANTHROPIC_API_KEY={} python run_eval.py --limit 20", _anthropic("env-2")),
        ("PGPASSWORD='{}' psql -h db.internal -U app -c 'select 1'", "wo0den.Sp00n!"),
        ("export AWS_SECRET_ACCESS_KEY={}", _chars("env-3", 40, _BASE64)),
        ('$env:AZURE_CLIENT_SECRET = "{}"', _chars("env-4", 3) + "8Q~" + _chars("env-5", 34)),
        ("set SMTP_PASS={}", "lanternfish"),
        ('setx NUGET_API_KEY "{}"', "oy2" + _chars("env-6", 43, _LOWER_ALNUM)),
        ("docker run -d -e POSTGRES_PASSWORD={} -p 5432:5432 postgres:16", "velvetbadger"),
        ('declare -x DJANGO_SECRET_KEY="{}"', "z9w&k2_e#mq^7r(v+hb0x@tn4"),
        ("env MYSQL_PWD={} mysqldump -u backup shop > shop.sql", "Tr4m-Line#9"),
        ("      - REDIS_PASSWORD={}", "quietharbor"),
    ],
    "program options": [
        ("mysql -u root -p{} shop", "Gr1ndstone"),
        ("mysql --host=10.0.0.5 --user=app --password={} -e 'show tables'", "cobblestone"),
        ("sshpass -p '{}' ssh deploy@web01.example.org uptime", "M0ss&Fern"),
        ("curl -u admin:{} https://jenkins.example.org/api/json", "plumtree42"),
        ("redis-cli -h cache -a {} ping", "snowdrift"),
        ("docker login registry.example.org -u ci -p {}", "Ferry_Boat_31"),
        ("openssl pkcs12 -in site.p12 -nodes -passin pass:{}", "oldwindmill"),
        ("ldapsearch -x -D cn=admin,dc=example,dc=org -w {} -b dc=example,dc=org", "Otter!Den5"),
        ("mongosh mongodb.internal/shop -u app -p {}", "redcurrant8"),
        ("smbclient //nas/share -U ida%{}", "Hedge7hog"),
        ("keytool -list -keystore app.jks -storepass {}", "amberglow"),
        ('sqlcmd -S tcp:db.example.org -U sa -P {} -Q "SELECT 1"', "St0rk#Nest"),
        ("kubectl create secret generic db --from-literal=password={}", "driftwood"),
        ("twine upload -u __token__ -p {} dist/*", "py" + "pi-" + _chars("opt-1", 60, _URLSAFE)),
        ("helm upgrade shop ./chart --set auth.rootPassword={}", "Meadow19Lark"),
        ('echo "deploy:{}" | chpasswd', "larkspur88"),
    ],
    "settings commands": [
        ("aws configure set aws_secret_access_key {}", _chars("set-1", 40, _BASE64)),
        ("npm config set //registry.npmjs.org/:_authToken {}", _npm("set-2")),
        ("poetry config pypi-token.pypi {}", "py" + "pi-" + _chars("set-3", 64, _URLSAFE)),
        ("poetry config http-basic.internal ci {}", "Thistle3down"),
        (
            'git config http.extraHeader "Authorization: Bearer {}"',
            _chars("set-4", 40, _LOWER_ALNUM),
        ),
        ("heroku config:set SECRET_KEY_BASE={} -a shop", _chars("set-5", 64, _HEX)),
        ("composer config --global github-oauth.github.com {}", _github("set-6")),
        ("127.0.0.1:6379> CONFIG SET requirepass {}", "bramblewick"),
        ('dotnet user-secrets set "Smtp:Password" "{}"', "Ivy&0ak&Elm"),
        ("pulumi config set --secret dbPassword {}", "Lichen_2024"),
    ],
    "configuration files": [
        ("DATABASE_PASSWORD={}", "hazelgrove"),
        ('STRIPE_SECRET_KEY="{}"', _stripe("cfg-1")),
        ("aws_secret_access_key = {}", _chars("cfg-2", 40, _BASE64)),
        ("password = {}", "M4rbled Godwit"),
        ("[smtp]\nuser = mailer\npass = {}\n", "nightjar"),
        ("  password: {}", "Wren+Finch=2"),
        ("          - name: DB_PASSWORD\n            value: {}", "kettledrum"),
        ('  "password": "{}",', "sandpiper"),
        ('{{"user": "ida", "clientSecret": "{}"}}', _chars("cfg-4", 40)),
        ("spring.datasource.password={}", "Ch4lk.Down"),
        ("<password>{}</password>", "Yarrow;Field"),
        ('<add key="ApiToken" value="{}" />', _chars("cfg-5", 28)),
        ("//registry.npmjs.org/:_authToken={}", _npm("cfg-6")),
        ("machine git.example.org login ida password {}", "tealfeather"),
        ("requirepass {}", "Gu11-over-pier"),
        (
            "Server=db;Database=shop;User Id=app;Password={};Encrypt=True",
            "Heron4Pond!",
        ),
        ('      "auth": "{}"', _b64("ci:" + "Puddle" + "jumper6")),
    ],
    "web addresses": [
        ("git clone https://ida:{}@git.example.org/team/shop.git", "marshlight"),
        ("https://x-access-token:{}@github.com/acme/shop.git", _github("url-1")),
        ("DATABASE_URL=postgres://app:{}@db.internal:5432/shop", "C0rn-Crake"),
        ("redis://:{}@cache.internal:6379/0", "weathervane"),
        ("mongodb+srv://app:{}@cluster0.example.net/shop?retryWrites=true", "Bl4ckth0rn"),
        ("GET /v1/items?page=2&api_key={} HTTP/1.1", _chars("url-2", 32, _HEX)),
        ("curl 'https://api.example.org/me?access_token={}&fields=id'", _chars("url-3", 48)),
        ("https://maps.googleapis.com/maps/api/js?key={}", _google("url-4")),
        ("https://app.example.org/callback#id_token={}", _jwt("url-5")),
    ],
    "sql": [
        ("CREATE USER app WITH PASSWORD '{}';", "foxglove"),
        ("ALTER ROLE app WITH LOGIN ENCRYPTED PASSWORD '{}';", "Str4w&Berry"),
        ("CREATE USER 'app'@'%' IDENTIFIED BY '{}';", "Slate_Roof9"),
        ("mysql> SET PASSWORD FOR 'root'@'localhost' = '{}';", "dandelion"),
        ("CREATE LOGIN reporting WITH PASSWORD = N'{}', CHECK_POLICY = OFF;", "Rook#Tower1"),
        ("UPDATE users SET password = '{}' WHERE id = 17;", "pebblebeach"),
        ("INSERT INTO api_clients (name, api_key) VALUES ('ci', '{}');", _chars("sql-1", 32)),
    ],
    "source code": [
        ('password = "{}"', "moorhen"),
        ('client = OpenAI(api_key="{}")', _openai("src-2")),
        ('conn = psycopg2.connect(host="db", user="app", password="{}")', "Th1mble!"),
        ("const jwtSecret = '{}';", "under-the-lilac-7"),
        ("  password: '{}',", "cranefly"),
        ('    private static final String DB_PASSWORD = "{}";', "Oats&Barley1"),
        ('var authToken string = "{}"', _chars("src-3", 44, _URLSAFE)),
        ('os.environ["SLACK_BOT_TOKEN"] = "{}"', _slack("src-4")),
        ("process.env.JWT_SECRET || '{}'", "gingersnap"),
        ("$config['db']['password'] = '{}';", "P4per*Lantern"),
        ('-    token: str = "{}"', _gitlab("src-6")),
    ],
    "http headers": [
        ("Authorization: Bearer {}", _jwt("hdr-1")),
        (
            'curl -H "Authorization: token {}" https://api.github.com/user',
            _github("hdr-2"),
        ),
        ("> Authorization: Basic {}", _b64("admin:" + "Toad" + "stool4")),
        ("curl -H 'X-Api-Key: {}' https://api.example.org/v2/jobs", _chars("hdr-3", 32)),
        ("PRIVATE-TOKEN: {}", _gitlab("hdr-4")),
        ('headers = {{"Authorization": "Bearer {}"}}', _chars("hdr-5", 40)),
        ("Set-Cookie: auth_token={}; Path=/; HttpOnly; Secure", _chars("hdr-6", 40, _URLSAFE)),
        ("X-Vault-Token: {}", "hv" + "s." + _chars("hdr-7", 24)),
    ],
    "sentences": [
        ("The password is {}", "buttercup"),
        ("the db password for staging is {}, try again please", "R1ver-Bend"),
        ("please log in as admin with password {} and check the queue", "Millpond66"),
        ("my github token is {} - use it to push the branch", _github("say-1")),
        ("Use {} as the API key for the weather service.", _chars("say-2", 32, _HEX)),
        ("ssh to 10.0.0.7, user pi, password: {}", "raspberryfool"),
        ("I changed the root password to {} yesterday", "Spring!Tide"),
        ("Here's the OpenAI key: {}", _openai("say-3")),
        ("credentials are ida / {}", "Four2Winds"),
        ('the passphrase of the backup is "{}"', "nine brown hares at dawn"),
        ("set the admin password to '{}' in the seed script", "honeysuckle"),
        ("wifi pw: {}", "Sh3llBeach"),
    ],
    "key material": [
        (
            _pem(_RSA, "BEGIN")
            + "\n"
            + "MII"
            + _chars("key-1", 61, _BASE64)
            + "\n{}\n"
            + _pem(_RSA, "END"),
            _chars("key-2", 64, _BASE64),
        ),
        (
            "$ cat ~/.ssh/id_ed25519\n"
            + _pem(_OPENSSH, "BEGIN")
            + "\n{}\n"
            + _pem(_OPENSSH, "END")
            + "\n",
            "b3Blbn" + _chars("key-3", 64, _BASE64),
        ),
        (
            '  "private_key": "'
            + _pem(_PKCS8, "BEGIN")
            + "\\n{}\\n"
            + _pem(_PKCS8, "END")
            + '\\n",',
            "MIIE" + _chars("key-4", 120, _BASE64),
        ),
        (
            "    tls.key: |\n      " + _pem(_EC, "BEGIN") + "\n      {}\n      " + _pem(_EC, "END"),
            "MHcC" + _chars("key-5", 60, _BASE64),
        ),
        ("PrivateKey = {}", _chars("key-6", 43, _BASE64) + "="),
    ],
    "disguised tokens": [
        ("export GH={}", _between(_github("dis-1"), 12, "\u200b")),
        ("pushed with {}", _between(_github("dis-2"), 2, "\u2060")),
        ("found: {}", _between(_anthropic("dis-3"), 5, "\x1b[0m\x1b[31m")),
        ("./config.py:3:\x1b[01;31m\x1b[K{}", _between(_stripe("dis-4"), 8, "\x1b[m\x1b[K")),
        ("echo {} | base64 -d", _b64(_github("dis-5"))),
        ("  github: {}", _b64(_github("dis-6") + "\n")),
        ("key id {}", _between(_aws_id("dis-7"), 10, "\u00ad")),
    ],
}

HARMLESS: dict[str, list[str]] = {
    "environment variables": [
        "export GITHUB_TOKEN=$(gh auth token)",
        'export DB_PASSWORD="$POSTGRES_PASSWORD"',
        "TOKEN=${TOKEN:?must be set}",
        "unset AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN",
        "export SSH_AUTH_SOCK=/run/user/1000/keyring/ssh",
        "export MAX_TOKENS=4096",
        "docker run --rm -e POSTGRES_PASSWORD postgres:16",
        "API_KEY=******** npm start",
    ],
    "program options": [
        "mkdir -p src/auth/password",
        "ssh -p 2222 deploy@web01.example.org",
        "docker run -p 8080:80 -u 1000:1000 nginx:1.27",
        "mysql -u root -p shop",
        "docker login --username ci --password-stdin registry.example.org",
        'curl -u "$API_USER:$API_PASS" https://api.example.org/status',
        'pytest -k "token and not password" -x',
        "ls -a ~/.ssh",
        "ssh -i ~/.ssh/deploy_key -o PasswordAuthentication=no web01",
        "pip install -U keyring tokenizers passlib",
        "git add -p src/token.py",
        "rsync -az --password-file=/etc/rsync.pass data/ backup@nas::data",
    ],
    "settings commands": [
        "git config --global credential.helper osxkeychain",
        "git config user.signingkey ~/.ssh/id_ed25519.pub",
        "npm config get //registry.npmjs.org/:_authToken",
        "aws configure set region eu-central-1",
        "gh secret set DEPLOY_TOKEN < token.txt",
        "kubectl config set-context --current --namespace=auth",
        "poetry config virtualenvs.in-project true",
    ],
    "configuration files": [
        'password: "{{ vault_db_password }}"',
        "  token: ${{ secrets.GITHUB_TOKEN }}",
        "DB_PASSWORD=",
        "api_key = <your-api-key>",
        '  "max_tokens": 1024,',
        '  "tokenizer": "cl100k_base",',
        "password_min_length = 12",
        "require_password_change: true",
        "token_expiry_seconds=3600",
        "<passwordPolicy>strict</passwordPolicy>",
        "        secretKeyRef:\n          name: db-credentials\n          key: password",
        "PasswordAuthentication no",
        '      "integrity": "sha512-' + _chars("ok-1", 86, _BASE64) + '==",',
        "primary_key: id",
    ],
    "web addresses": [
        "https://docs.example.org/security/password-reset?lang=en#tokens",
        "git clone git@github.com:acme/token-service.git",
        "https://api.example.org/items?sort_key=price&page=3",
        "postgres://app:${DB_PASSWORD}@db.internal:5432/shop",
        "https://user:***@git.example.org/team/shop.git",
        "http://localhost:3000/auth/callback?error=invalid_token",
    ],
    "sql": [
        "SELECT id, password_hash FROM users WHERE email = $1;",
        "UPDATE users SET password = %s WHERE id = %s",
        "ALTER TABLE sessions ADD COLUMN token VARCHAR(64) NOT NULL;",
        "CREATE TABLE api_keys (id SERIAL PRIMARY KEY, token TEXT UNIQUE);",
        "DELETE FROM password_resets WHERE created_at < now() - interval '1 day';",
    ],
    "source code": [
        'password = getpass.getpass("Password: ")',
        'token = os.environ["GITHUB_TOKEN"]',
        "def check_password(user: User, password: str) -> bool:",
        "if password != confirm_password:",
        "const token = req.headers.authorization?.split(' ')[1];",
        "client = OpenAI(api_key=settings.openai_api_key)",
        "password: str | None = None",
        "tokens = tokenizer.encode(text, add_special_tokens=False)",
        'raise ValueError("password must not be empty")',
        'String password = request.getParameter("password");',
        '<input type="password" name="password" placeholder="Your password">',
        'secret := os.Getenv("JWT_SECRET")',
        'assert response.json()["token_type"] == "bearer"',
    ],
    "http headers": [
        'curl -H "Authorization: Bearer $TOKEN" https://api.example.org/me',
        '< WWW-Authenticate: Basic realm="Jenkins"',
        "Access-Control-Allow-Headers: Authorization, X-Api-Key, Content-Type",
        'ETag: "' + _chars("ok-2", 32, _HEX) + '"',
        "X-Request-Id: 7d9f0c52-41be-4c1e-9a53-0be6d2a1f4c8",
    ],
    "sentences": [
        "The password is wrong, please try again.",
        "Can you add a password reset page to the login form?",
        "the token is expired, so the agent gets a 401",
        "Rename the key in the config from token to access_token.",
        "I used 18,342 tokens in this session and the limit is 200,000.",
        "The secret to a good review is patience.",
        "Please don't print the API key in the logs.",
        "Where is the password stored, and who can read it?",
        "the password should be at least 12 characters long",
    ],
    "key material": [
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + _chars("ok-3", 43, _BASE64) + " ida@laptop",
        _pem(_PUBLIC, "BEGIN")
        + "\nMCow"
        + _chars("ok-4", 56, _BASE64)
        + "\n"
        + _pem(_PUBLIC, "END"),
        _pem(_CERT, "BEGIN") + "\nMIID" + _chars("ok-5", 60, _BASE64) + "\n" + _pem(_CERT, "END"),
        "256 SHA256:" + _chars("ok-6", 43, _BASE64) + " ida@laptop (ED25519)",
        "Your public key has been saved in /home/ida/.ssh/id_ed25519.pub",
    ],
    "ordinary output": [
        "tests/test_auth.py::test_password_is_hashed \x1b[32mPASSED\x1b[0m [ 42%]",
        "commit " + _chars("ok-7", 40, _HEX),
        _chars("ok-8", 64, _HEX) + "  dist/shop-1.4.0.tar.gz",
        "Digest: sha256:" + _chars("ok-9", 64, _HEX),
        "passwd: password updated successfully",
        "remote: Invalid username or password.",
        "[sudo] password for ida: ",
        "Team page \U0001f469\u200d\U0001f4bb updated",
        "echo " + _b64("The quick brown fox jumps over the lazy dog") + " | base64 -d",
    ],
}
