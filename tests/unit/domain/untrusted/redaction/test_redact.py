"""Every canary goes, every innocent string stays, and redacting twice changes nothing."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.domain.untrusted.redaction.names import secret_kind
from worker.domain.untrusted.redaction.redact import MAX_DEPTH, redact, redact_json

RUN = "Zx9Qw8Er7Ty6Ui5Op4As3Df2Gh1Jk0LzXcVbNm"
HEX = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
PEM = f"-----BEGIN RSA PRIVATE KEY-----\nMIIE{RUN}\n{RUN}==\n-----END RSA PRIVATE KEY-----"
JWT = f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx{RUN}.{RUN}"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# (text, what must not be left of it)
CANARIES = [
    ("password=hunter2", "hunter2"),
    ('{"log":"the password is \\"hunter2\\" again"}', "hunter2"),
    ("INFO read password: |\n  first-line\n  second-line\nuser: bob", "second-line"),
    ("blob=" + b64("password=hunter2hunter2"), b64("password=hunter2hunter2")),
    ('{"m":"kind: Secret\\nmetadata:\\n  name: db\\ndata:\\n  a: aHVudGVyMg\\n"}', "aHVudGVyMg"),
    ("data:   a: aHVudGVyMg   b: aHVudGVyMw kind: Secret metadata:   name: db", "aHVudGVyM"),
    ("password = hunter2", "hunter2"),
    ("the password is hunter2", "hunter2"),
    ("Password is: Tr0ub4dor&3, ask bob", "Tr0ub4dor&3"),
    ('{"log":"passwd was s3cr3t-2"}', "s3cr3t-2"),
    ('level=info msg="the passphrase is 2Fast4You!"', "2Fast4You"),
    ("pwd: hunter2", "hunter2"),
    ("PWD=/Xk29!aB3", "/Xk29!aB3"),
    ("pass: 12monkeys", "12monkeys"),
    ("sig=3045022100abcdef", "3045022100abcdef"),
    ("Password: hunter2", "hunter2"),
    ("PASSWORD='hun ter2'", "ter2"),
    ("DB_PASSWORD=pa;ss&w,rd!9", "w,rd"),
    ('{"password":"hun\\"ter2"}', "ter2"),
    ('{"password": 8675309}', "8675309"),
    ("{'dbPassword': 'hunter2'}", "hunter2"),
    ('"{\\"password\\":\\"hunter2\\"}"', "hunter2"),
    ('"{\\\\\\"password\\\\\\":\\\\\\"hunter2\\\\\\"}"', "hunter2"),
    ("&quot;password&quot;:&quot;hunter2&quot;", "hunter2"),
    (
        "aws_secret_access_key wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    ),
    (f"  api_key  {HEX}  env", HEX),
    ("DB_PASSWORD hunter2hunter2", "hunter2hunter2"),
    (f"AUTH_TOKEN {HEX}", HEX),
    (f"the token is {HEX}, as before", HEX),
    (f"API key was {HEX}.", HEX),
    ("PASSWORD\u200b=hunter2", "hunter2"),
    ("PASS\u200bWORD\u2060: hunter2", "hunter2"),
    (f"api\u00ad_key\ufeff {HEX}", HEX),
    ("id\u200bAKIAIOSFODNN7EXAMPLE, PASS\u200bWORD=hunter2", "AKIAIOSFODNN7EXAMPLE"),
    ("PASS\u200bWORD=hunter2 and password=hunt\u200ber2", "er2"),
    ('password="hunter2 and the line was cut', "cut"),
    ("password: correct horse battery staple\nuser: bob", "staple"),
    ("  password: |\n    first-line\n    second-line\n  user: bob", "second-line"),
    ('{"a":"user: b\\npassword: correct horse\\nhost: x"}', "horse"),
    ('{"a":"password: |\\n  first-line\\n  second-line\\nhost: x"}', "second-line"),
    ("a\\npass=hunter2", "hunter2"),
    ("a\\n--password hunter2", "hunter2"),
    ("a\\nbearer " + HEX, HEX),
    ("a\\n" + b64("robot:hunter2hunter2"), b64("robot:hunter2hunter2")),
    ("  password: >-\n    first-line\n  user: bob", "first-line"),
    ("password:\n  hunter2\nuser: bob", "hunter2"),
    ("passwords: [hunter2, hunter3]", "hunter3"),
    ('{"token":"\npassword="hunter2"', "hunter2"),
    ('token=" password="hunter2" user="bob"', "hunter2"),
    ('"password": correct horse battery', "horse"),
    ("<password>hunter2</password>", "hunter2"),
    ("&Config{User:bob Password:hunter2 Host:db}", "hunter2"),
    ("MYSQL_PWD=hunter2", "hunter2"),
    ("spring.datasource.password=hunter2", "hunter2"),
    ("pgpassword hash: PGPASSWORD=hunter2", "hunter2"),
    ("ssl.keystore.password=changeit1", "changeit1"),
    ("requirepass hunter2", "hunter2"),
    ("mysqldump --password hunter2 --user x", "hunter2"),
    ("mysqldump --password=hunter2 --user x", "hunter2"),
    ('args: ["--password","hunter2"]', "hunter2"),
    ("curl -u bob:hunter2 http://x", "hunter2"),
    ("curl --user=bob:hunter2 http://x", "hunter2"),
    ("sshpass -p hunter2 ssh bob@x", "hunter2"),
    ("mysqldump -h db -u root -phunter2 shop", "hunter2"),
    ("docker login -u bob -p hunter2 registry.example.com", "hunter2"),
    ("GET /login?user%3Dbob%26password%3Dhunter2", "hunter2"),
    ('{"a":"password\\u003dhunter2"}', "hunter2"),
    ("{\\u0022password\\u0022:\\u0022hunter2\\u0022}", "hunter2"),
    ("CREATE USER a IDENTIFIED BY 'hunter2'", "hunter2"),
    ('login with password "hunter2" failed', "hunter2"),
    ("- name: DB_PASSWORD\n  value: hunter2", "hunter2"),
    ('{"name":"DB_PASSWORD","value":"hunter2"}', "hunter2"),
    ("EnvVar{Name:DB_PASSWORD,Value:hunter2,ValueFrom:nil,}", "hunter2"),
    ('{"key":"X-Api-Key","value":"hunter2"}', "hunter2"),
    ("postgres://otelu:hunter2@db/otel", "hunter2"),
    ("postgres://otelu:p@ss/w0rd@db/otel", "w0rd"),
    ("amqp://guest:1234@mq:5672/", "1234"),
    ("redis://:hunter2@cache:6379/0", "hunter2"),
    ("mongodb+srv://u:hunter2@a.example.com,b.example.com/x", "hunter2"),
    ("app:hunter2@tcp(db:3306)/shop", "hunter2"),
    (f"https://{RUN}@git.example.com/a.git", RUN),
    ("Server=db;User Id=sa;Password=hunter2;Encrypt=true", "hunter2"),
    ("host=db user=a password=hunter2 dbname=x", "hunter2"),
    (f"AccountName=a;AccountKey={RUN}==;EndpointSuffix=x", RUN),
    (f"Endpoint=sb://x/;SharedAccessKey={RUN}=", RUN),
    (f"https://x.example.com/c?sv=2024&sig={RUN}%3D&se=1", RUN),
    (f"https://x.example.com/c?X-Amz-Signature={HEX}", HEX),
    (f"https://x.example.com/c?a=1&access_token={RUN}", RUN),
    (f"Authorization: Bearer {RUN}", RUN),
    ("authorization: Basic YWRtaW46aHVudGVyMg==", "YWRtaW46aHVudGVyMg"),
    ("Proxy-Authorization: Negotiate YIIabcdefg0", "YIIabcdefg0"),
    (f"sent bearer {HEX} to upstream", HEX),
    (f"X-Api-Key: {HEX}", HEX),
    (f"Cookie: a=1; session={HEX}", HEX),
    (f"Set-Cookie: session={HEX}; Path=/", HEX),
    (f"got {JWT} from issuer", JWT[20:]),
    (PEM, RUN),
    (json.dumps({"x": PEM}), RUN),
    (PEM[:70], PEM[40:60]),
    (PEM[40:], RUN[8:]),
    (json.dumps(PEM[40:])[1:-1], RUN[8:]),
    (f"key: {b64(PEM)}", b64(PEM)[20:60]),
    (f"client-key-data: {b64('x' + RUN)}", b64("x" + RUN)),
    (b64("apiVersion: v1\nkind: Config\nusers:\n- user:\n    token: hunter2hunter2\n"), "aHVudGVy"),
    ('{"auths":{"registry.example.com":{"auth":"' + b64("robot:hunter2") + '"}}}', b64("robot:hunter2")),
    ("data: " + b64("robot:hunter2hunter2"), b64("robot:hunter2hunter2")),
    ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN7"),
    (f"aws_secret_access_key = {RUN}", RUN),
    (f'"SecretAccessKey": "{RUN}"', RUN),
    (f"AIza{RUN[:35]}", RUN[:35]),
    (f"ya29.{RUN}", RUN),
    (f"GOCSPX-{RUN}", RUN),
    (f"abc8Q~{RUN}", RUN),
    (f"ghp_{RUN[:36]}", RUN[:36]),
    (f"ghs_{RUN[:36]}", RUN[:36]),
    (f"github_pat_11ABCDE_{RUN}", RUN),
    (f"glpat-{RUN[:20]}", RUN[:20]),
    (f"xoxb-1234567890-{RUN}", RUN),
    (f"xapp-1-A1-{RUN}", RUN),
    (f"https://hooks.slack.com/services/T0AAAAAAA/B0AAAAAAA/{RUN[:24]}", RUN[:24]),
    (f"sk-{RUN}", RUN),
    (f"sk-{HEX}", HEX),
    (f"sk-proj-{RUN}", RUN),
    (f"sk-ant-api03-{RUN}-AA", RUN),
    (f"sk_live_{RUN}", RUN),
    (f"SG.{RUN[:22]}.{RUN}", RUN[:22]),
    (f"npm_{RUN[:36]}", RUN[:36]),
    (f"hf_{RUN[:34]}", RUN[:34]),
    (f"hvs.{RUN}", RUN),
    (f"bot 1234567890:AA{RUN[:33]}", RUN[:33]),
    ("SUAM" + "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567" + "ABCDEFGHIJKLMNOPQRSTUV", "ABCDEFGHIJKLMNOP"),
    (f"root:$6$saltsalt${RUN}:19000:0", RUN),
    (f"admin:$2y$10${RUN}", RUN),
    ("while the Secret now holds NEWpass_7k9m2q4x", "NEWpass_7k9m2q4x"),
    (f"the API key is {RUN}.", RUN),
    ("API key: hunter2hunter2", "hunter2"),
    ("client_secret=hunter2hunter2", "hunter2"),
    ("secret: hunter2hunter2", "hunter2"),
    (f"secret_id={HEX}", HEX),
    ("token=9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d", "9b1deb4d"),
    ('"token":"hunter2"', "hunter2"),
    ("kind: Secret\ndata:\n  username: cm9vdHJvb3Q=\n", "cm9vdHJvb3Q"),
    ("data:\n  a.conf: |\n    line-one\nkind: Secret\n", "line-one"),
    ('x {"data":{"username":"cm9vdHJvb3Q="},"kind":"Secret"} y', "cm9vdHJvb3Q"),
]

INNOCENT = """
Image pull secrets:  regcred
Image pull secrets:  <none>
Mountable secrets:   builder
password:  12 bytes
credentials: no EC2 IMDS role found
kubeconfig: no such file
may require authorization: server message: insufficient_scope: authorization failed
disk-cleaner
risk-engine
sk-runner
sk-runner-757f89d977-795x7
task-sk-worker-6c9d5b7f88-w7kdz
secretName: registry-credentials
"secretName": "registry-credentials"
imagePullSecret: registry-credentials
existingSecret: pg-auth
secret: registry-credentials
secret=shop/registry-credentials
SECRET_NAME: registry-credentials
"SECRET_NAME": "registry-credentials"
tokenReview
kind: TokenReview
apiVersion: authentication.k8s.io/v1
password authentication failed for user otelu
password authentication failed for user "otelu"
FATAL:  password authentication failed for user "otelu"
Access denied for user 'app'@'10.0.0.1' (using password: YES)
configmap "app-config" not found
secret "db-credentials" not found
secrets "db-credentials" is forbidden: User "system:serviceaccount:a:b" cannot get resource "secrets" in API group ""
couldn't find key password in Secret shop/db
MountVolume.SetUp failed for volume "creds" : references non-existent secret key: password
Error: secret "pg-auth" not found
kind: Secret
"kind": "Secret"
resources: ["secrets"]
serviceAccountToken:
      serviceAccountToken:\n        path: token\n        expirationSeconds: 3607
automountServiceAccountToken: false
token expired
token has expired
token: expired
token is expired by 3m2s
invalid token: signature is invalid
error: invalid bearer token
the server has asked for the client to provide credentials
Unauthorized: bearer token required
Bearer authentication failed for request
WWW-Authenticate: Bearer realm="https://auth.example.com/token",service="registry.example.com"
x509: certificate has expired or is not yet valid: current time 2026-04-14T16:25:56Z is after 2026-04-10T00:00:00Z
sha256:4251a1de13f53a6e2a017102d0738a3ef137c1aad69a30bdf3d934be77ac3a70
registry.example.com/a/b@sha256:4251a1de13f53a6e2a017102d0738a3ef137c1aad69a30bdf3d934be77ac3a70
docker://registry.example.com:5000/app@sha256:4251a1de13f53a6e2a017102d0738a3ef137c1aad69a30bdf3d934be77ac3a70
containerd://4251a1de13f53a6e2a017102d0738a3ef137c1aad69a30bdf3d934be77ac3a70
commit 3f786850e387550fdab836ed7e6dc881de23001b
dd0f425
uid: d5e44fd2-6e58-5567-8237-60cfce9fbe19
resourceVersion: "123456789"
pod-template-hash: 757f89d977
argocd.argoproj.io/tracking-id: shop:apps/Deployment:shop/api
argocd.argoproj.io/instance: shop
kustomize.toolkit.fluxcd.io/name: apps
helm.toolkit.fluxcd.io/namespace: flux-system
meta.helm.sh/release-name: shop
app.kubernetes.io/managed-by: Helm
"annotations":{"argocd.argoproj.io/sync-wave":"1","deployment.kubernetes.io/revision":"4"}
cert-manager.io/issuer: letsencrypt
sidecar.istio.io/status: injected
memory: 512Mi
cpu: 250m
storage: 10Gi
ephemeral-storage: 1536Mi
nvidia.com/gpu: "1"
{"limits":{"memory":"16Mi"},"requests":{"cpu":"100m"}}
count/secrets: 10
secrets: "10"
max_tokens: 4096
"max_tokens": 4096
{"input_tokens": 1200, "output_tokens": 300}
tokens: 8448
tokenizer: o200k
token_type: Bearer
tokenExpirationSeconds: 3600
keys: 3
primary_key: id
partitionKey=orders
routing_key: orders.created
"key": "password"
key: password
secretKeyRef:\n  name: pg-auth\n  key: password
{"secretKeyRef":{"name":"pg-auth","key":"password"}}
{"name":"DB_PASSWORD","valueFrom":{"secretKeyRef":{"name":"pg-auth","key":"password"}}}
- name: DB_PASSWORD\n  valueFrom:\n    secretKeyRef:\n      key: password\n      name: pg-auth
POSTGRES_PASSWORD:  <set to the key 'password' in secret 'pg-auth'>  Optional: false
password: ""
password:
password: null
password=
"password": ""
password: ******
password: ${DB_PASSWORD}
password: $(DB_PASSWORD)
password: {{ .Values.db.password }}
password_file: /run/secrets/db
--tls-private-key-file=/etc/kubernetes/pki/apiserver.key
ssl_key: /etc/ssl/private/server.key
tls.key: /etc/certs/tls.key
imagePullSecrets:\n- name: registry-credentials
imagePullSecrets: [{"name":"registry-credentials"}]
Mountable secrets: default-token-x7x2k
Volume default-token-x7x2k not mounted
MountVolume.SetUp failed for volume "kube-api-access-8x2lq" : configmap "kube-root-ca.crt" not found
FailedToRetrieveImagePullSecret
Unable to retrieve some image pull secrets (registry-credentials); attempting to pull the image may not succeed.
Back-off restarting failed container flask in pod db-certs-authenticator-757f89d977-795x7_db-certs(d5e44fd2-6e58-5567-8237-60cfce9fbe19)
Failed to pull image "registry.example.com/x:v1": authentication required
no basic auth credentials
0/3 nodes are available: 3 node(s) had untolerated taint {node.kubernetes.io/unreachable: }.
exec /app/server: exec format error
dial tcp 10.96.0.10:5432: connect: connection refused
Get "https://10.96.0.1:443/api/v1/namespaces/kube-system/secrets?limit=500": dial tcp: i/o timeout
http://shop:8080/a@b
https://example.com/@scope/package
https://example.com:8443/path?user=a@b
mailto:team@example.com
git@github.com:org/repo.git
postgresql://db:5432/otel
http://[fd00::1]:8080/x@y
jdbc:postgresql://db:5432/otel?user=app
nats://nats-0.nats:4222,nats://nats-1.nats:4222
compass: north
token is invalid
the token is ServiceAccountTokenVolumeProjection1.
the secret is registry-credentials-2024
the secret is api-7f9a8b7c6d-x2x4z
access_token 123e4567-e89b-12d3-a456-426614174000
refresh_token 2026-10-10T10:10:10Z
continue_token 12345678901234567890
cache_key 0f1e2d3c4b5a69788796a5b4c3d2e1f0
routing-key 0f1e2d3c4b5a69788796a5b4c3d2e1f0
DB_PASSWORD from-secret-db-credentials-1
unable to verify access_token signature
zero\u200bwidth and na\u00adme
bypass=true
pass: 3
passed: 10
pattern: abc
author: bob
authority: example.com
auth: enabled
authentication: required
authorizationMode: RBAC
Authorization Mode: RBAC
signature_version: 4
docker: running
keyspace: orders
keepalive: 60
monkey: banana
turkey=1
ghp_
github_pattern
xoxo-hugs
AKIA
eyJ
sk-
basic authentication
basic auth
Basic usage: run it
java.lang.OutOfMemoryError: Java heap space
at com.example.TokenService.refreshToken(TokenService.java:42)
TokenExpiredError: jwt expired
JsonWebTokenError: invalid signature
ClassNotFoundException: com.example.PasswordEncoder
org.springframework.security.authentication.BadCredentialsException: Bad credentials
password must be at least 8 characters
Enter password for admin
wrong password for user admin
passwordless login is on
secret rotation happened 9 minutes ago
the Secret was rotated at 2026-04-14T16:16:56Z
Secret shop/db-auth changed 9m ago
Secret db-auth in namespace shop holds the password
credentials: registry-credentials
traceId: 327a824a0e1f4c6b9d2a
"traceId":"ce3c00b63f1d2e4a5b6c7d8e"
span_id=00f067aa0ba902b7
trace 4bf92f3577b34da6a3ce929d0e0e4736
X-Request-Id: 9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d
etcdserver: mvcc: database space exceeded
max-file-size 10Mi
AAAAAAAAAAAAAAAAAAAA
deadbeefdeadbeefdeadbeef
aGVsbG8gd29ybGQhIQ==
productcatalogservice
orders-7d8f9c6b5-abcde.17a3f0c9b2d4e6f8
2026-06-04T19:22:52Z Warning BackOff x6 (since 2026-06-04T19:19:24Z) Pod orders/worker-57f: Back-off
Pod orders/worker container app, current, last 40 lines
NAME | READY | STATUS | RESTARTS | REASON | NODE | OWNER | AGE
restart-deployment-v1
refresh-pull-secret-v1
RefreshImagePullSecret
IncreaseMemoryLimits
AuthenticationFailure
[REDACTED:password]
password=[REDACTED:password]
{"password":"[REDACTED:password]"}
postgres://u:[REDACTED:password]@db/x
value: "[REDACTED:env]"
$$$
$5 off
cost $2.50
http://
://
a@b
{"a":1}
-----BEGIN
--flag value
--token-ttl 3600s
--service-account-key-file /etc/sa.pub
-c config.yaml
find / -name x
docker run -u 1000:1000 image
mysql -h db -P 3306 -u app
sort -u a:b
mkdir -p /var/lib/mysql
mysql -e 'select 1' && mkdir -p /tmp/x
ssh -p 2222 host
docker run -p 8080:80 image
""".strip().split("\n")


# Forms that span lines, separators or quoting.
STRUCTURED = [
    ("db.example.com:5432:shop:bob:hunter2", "hunter2"),
    ("*:*:*:bob:hunter2", "hunter2"),
    ("$ cat ~/.pgpass\nlocalhost:5432:*:postgres:hunter2\n", "hunter2"),
    ("jdbc:oracle:thin:scott/tiger99@//db:1521/ORCL", "tiger99"),
    ("jdbc:oracle:thin:scott/tiger99@db:1521:ORCL", "tiger99"),
    ("sqlplus scott/tiger99@db:1521/ORCL", "tiger99"),
    ("connecting to bob:hunter2@db.internal/shop", "hunter2"),
    ("dsn user:pw99xx@db/shop?sslmode=disable", "pw99xx"),
    ("Cookie: a=1111aaaa2222; session=hunter2hunter2; csrftoken=zzzz9999yyyy", "hunter2hunter2"),
    ("Cookie: a=1111aaaa2222; session=hunter2hunter2; csrftoken=zzzz9999yyyy", "zzzz9999yyyy"),
    ("Cookie: theme=dark1234abcd; sid=hunter2hunter2", "dark1234abcd"),
    ("Set-Cookie: SID=hunter2hunter2; Path=/; HttpOnly", "hunter2hunter2"),
    (
        "set-cookie: SID=hunter2hunter2; Path=/; HttpOnly\r\nset-cookie: B=zzzz9999yyyy; Secure",
        "zzzz9999yyyy",
    ),
    ("curl -H 'Cookie: SID=hunter2hunter2; B=zzzz9999yyyy' http://x", "zzzz9999yyyy"),
    ('{"headers":{"cookie":"SID=hunter2hunter2; B=zzzz9999yyyy"}}', "zzzz9999yyyy"),
    ('{"password": {"value": "hunter2"}}', "hunter2"),
    ('{"password":\n  {"value":\n "hunter2"}}', "hunter2"),
    ('{\n "password":\n   "hunter2",\n "a": 1}', "hunter2"),
    ('{"credentials": ["hunter2x9", "hunter3x9"]}', "hunter3x9"),
    ('{\n  "passwords": [\n    "hunter2",\n    "hunter3"\n  ]\n}', "hunter3"),
    ("redis-cli -h x\\nredis-cli -a hunter2 ping", "hunter2"),
    ("redis-cli -a hunter2 ping", "hunter2"),
    ("run:\\n  mysql -u root -phunter2 shop", "hunter2"),
    ("a\\nsshpass -p hunter2 ssh x", "hunter2"),
    ("keytool -list -storepass hunter2", "hunter2"),
    ("a\\nkeytool -storepass hunter2 -keypass hunter3", "hunter3"),
    ("sshpass -phunter2 ssh x", "hunter2"),
    ('password = """hunter2 has\nmore lines\n"""\nuser = 1', "more lines"),
    ('password = """\nhunter2 has\nmore lines\n"""\nuser = 1', "hunter2"),
    ("password = '''\nhunter2\nmore\n'''\nuser = 1", "more"),
    ("passwords:\n  - hunter2\n  - hunter3\nuser: bob", "hunter3"),
    ("tokens:\n- hunter2x9\n- hunter3x9\nuser: bob", "hunter3x9"),
    ("apiKeys:\n  - hunter2x9\n  - hunter3x9\n", "hunter3x9"),
    ("('password', 'hunter2')", "hunter2"),
    ("[('user', 'bob'), ('password', 'hunter2')]", "hunter2"),
    ('("DB_PASSWORD", "hunter2")', "hunter2"),
    ("| password | hunter2 |", "hunter2"),
    ("| DB_PASSWORD | hunter2 | x |", "hunter2"),
    ("│ password │ hunter2 │", "hunter2"),
    ("the passphrase h7Gk2pQ9zXw4Lm8T was wrong", "h7Gk2pQ9"),
    ("pull secrets: hunter2", "hunter2"),
    *(
        ("\n".join(f"{lead}{line}" for line in PEM.split("\n")), RUN)
        for lead in ("| ", "> ", "[pod/a/b] ", "2026-01-01T00:00:00Z app ")
    ),
    *(("\n".join(f"{lead}{line}" for line in PEM.split("\n")[:-1]), RUN) for lead in ("| ", "[pod/a/b] ")),
]


@pytest.mark.parametrize(
    ("text", "secret"), [*CANARIES, *STRUCTURED], ids=range(len(CANARIES) + len(STRUCTURED))
)
def test_a_secret_goes(text, secret):
    assert secret in text
    shown = redact(text)
    assert secret not in shown
    assert "[REDACTED:" in shown


@pytest.mark.parametrize(
    ("text", "secret"), [*CANARIES, *STRUCTURED], ids=range(len(CANARIES) + len(STRUCTURED))
)
def test_a_secret_goes_in_the_middle_of_a_log(text, secret):
    shown = redact(f"2026-04-14T16:25:42Z INFO start\n{text}\n2026-04-14T16:25:43Z INFO end")
    assert secret not in shown
    assert shown.startswith("2026-04-14T16:25:42Z INFO start\n")
    assert shown.endswith("2026-04-14T16:25:43Z INFO end")


@pytest.mark.parametrize("text", [line.replace("\\n", "\n") for line in INNOCENT], ids=range(len(INNOCENT)))
def test_a_name_stays(text):
    assert text == redact(text)


def test_there_are_enough_examples():
    assert len(CANARIES) >= 50
    assert len(INNOCENT) >= 200


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgres://otelu:hunter2@db/otel", "postgres://otelu:[REDACTED:password]@db/otel"),
        ("user=a password=hunter2 dbname=x", "user=a password=[REDACTED:password] dbname=x"),
        ('{"password":"a","user":"b"}', '{"password":"[REDACTED:password]","user":"b"}'),
        ('{"password": 1, "user": 2}', '{"password": "[REDACTED:password]", "user": 2}'),
        (
            "a: |\n  b\npassword: |\n  c\n  d\nuser: e",
            "a: |\n  b\npassword: |\n  [REDACTED:password]\nuser: e",
        ),
        ('{\n  "password": 123,\n  "a": 1\n}', '{\n  "password": "[REDACTED:password]",\n  "a": 1\n}'),
        ('{\n  "token": null,\n  "a": 1\n}', '{\n  "token": null,\n  "a": 1\n}'),
        ('{\n  "secret": {"a": "b"},\n  "c": 1\n}', '{\n  "secret": {"a": "b"},\n  "c": 1\n}'),
        ("user=a,password=b,host=c", "user=a,password=[REDACTED:password],host=c"),
        ("password: hunter2 # old\nuser: b", "password: [REDACTED:password] # old\nuser: b"),
        ("(password=hunter2)", "(password=[REDACTED:password])"),
        ("set password: | hunter2 user: b", "set password: [REDACTED:password] user: b"),
        ("set password: >- hunter2 user: b", "set password: [REDACTED:password] user: b"),
        ("| token: | status | ready |", "| token: | status | ready |"),
        (
            "kind: Secret\ndata:\n  a: Yg==\nmetadata:\n  name: x",
            "kind: Secret\ndata:\n  a: [REDACTED:secret]\nmetadata:\n  name: x",
        ),
        ("Cookie: a=1; b=2", "Cookie: [REDACTED:cookie]"),
        ("Authorization: Bearer abcdefg1 x=1", "Authorization: [REDACTED:authorization]"),
    ],
)
def test_only_the_value_is_replaced(text, expected):
    assert expected == redact(text)


def test_json_is_judged_by_its_keys():
    value = {
        "password": "hunter2",
        "nested": [{"apiKey": 12345, "name": "sk-runner", "ok": True}],
        "passwords": ["a1", "b2"],
        "env": [{"name": "DB_PASSWORD", "value": "hunter2"}, {"name": "LEVEL", "value": "info"}],
        "serviceAccountToken": {"path": "token"},
        "secretName": "registry-credentials",
        "text": "token=hunter2",
        "automountServiceAccountToken": False,
        "token": None,
    }
    mark = "[REDACTED:password]"
    assert {
        "password": mark,
        "nested": [{"apiKey": "[REDACTED:key]", "name": "sk-runner", "ok": True}],
        "passwords": [mark, mark],
        "env": [{"name": "DB_PASSWORD", "value": mark}, {"name": "LEVEL", "value": "info"}],
        "serviceAccountToken": {"path": "token"},
        "secretName": "registry-credentials",
        "text": "token=[REDACTED:token]",
        "automountServiceAccountToken": False,
        "token": None,
    } == redact_json(value)


def test_a_secret_object_keeps_its_keys_only():
    secret = {"kind": "Secret", "metadata": {"name": "a"}, "data": {"user": "Ym9i"}, "stringData": {"x": "y"}}
    mark = "[REDACTED:secret]"
    assert {
        "kind": "Secret",
        "metadata": {"name": "a"},
        "data": {"user": mark},
        "stringData": {"x": mark},
    } == redact_json(secret)


def test_json_in_a_string_is_read_too():
    inner = json.dumps({"kind": "Secret", "data": {"user": "Ym9iYm9i"}})
    assert "Ym9iYm9i" not in json.dumps(redact_json({"last": inner}))
    assert "Ym9iYm9i" not in redact(json.dumps({"last": inner}))


def test_too_deep_json_is_cut():
    value = "password=hunter2"
    for _ in range(MAX_DEPTH + 5):
        value = [value]
    assert "hunter2" not in json.dumps(redact_json(value))


KEYS = st.sampled_from(
    [
        "password",
        "DB_PASSWORD",
        "clientSecret",
        "x-api-key",
        "token",
        "name",
        "user",
        "kind",
        "data",
        "key",
        "value",
        "Authorization",
    ]
)
GLUE = st.sampled_from(
    [
        "=",
        ": ",
        ":",
        '":"',
        '\\":\\"',
        " ",
        "\n",
        "\n  ",
        ",",
        ", ",
        '"',
        "'",
        "{",
        "}",
        "[",
        "]",
        "|\n  ",
        "://",
        "@",
        "&",
        ";",
        "- ",
        "<",
        "</",
        ">",
        "--",
        "Secret",
        "kind: Secret\n",
        "data:\n",
        "[REDACTED:x]",
        "Bearer ",
        "eyJ",
        "sk-",
        "''",
        "\\",
    ]
)
FREE = st.text(max_size=12)
PIECES = st.lists(st.one_of(KEYS, GLUE, FREE), max_size=24).map("".join)


@given(PIECES)
def test_redacting_twice_changes_nothing(text):
    once = redact(text)
    assert once == redact(once)


@given(PIECES)
def test_a_planted_password_never_survives(text):
    assert "Hunter2Hunter3" not in redact(f'{text}\npassword="Hunter2Hunter3"\n')


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | FREE,
        lambda v: st.lists(v) | st.dictionaries(KEYS | FREE, v),
        max_leaves=12,
    )
)
def test_json_stays_json_and_redacting_it_twice_changes_nothing(value):
    once = redact_json(value)
    assert once == redact_json(json.loads(json.dumps(once)))


@pytest.mark.parametrize(
    "text",
    [
        "a" * 1_000_000,
        "A" * 999_999 + "=",
        "\\" * 1_000_000,
        "password=" * 100_000,
        'password="' * 100_000,
        "password: \n" * 90_000,
        "password: |\n" + "  x\n" * 250_000,
        "-----BEGIN X-----" * 60_000,
        "QUJD\n-----END X-----\n" * 40_000,
        "QUJD\n" * 200_000 + "-----END X-----",
        "mysql " * 160_000,
        "docker login " + "a " * 400_000,
        "-u a:" * 160_000,
        "://a:" * 200_000 + "@",
        "user:" * 200_000 + "@tcp(",
        "name: aa " + " " * 1_000_000,
        "token " * 160_000,
        "password: a1 " * 80_000,
        'password="a1" ' * 70_000,
        ('password="' + '"x' * 8_000 + "\\n") * 60,
        "password: a" + " " * 1_000_000 + "b",
        "password: a" + " #" * 500_000,
        "password: !a" + " " * 1_000_000 + "b",
        "password: |" + "\\n" * 500_000,
        '"a":"password: |' + "\\n  x" * 200_000,
        "kind: Secret\n" * 70_000,
        '{"kind":"Secret",' * 60_000,
        '{"kind":"Secret"}' * 60_000,
        "{" * 1_000_000 + '"kind":"Secret"',
    ],
    ids=lambda text: text[:16],
)
@pytest.mark.timeout(120)
def test_long_hostile_text_is_linear(text):
    """A quadratic rule takes minutes on these."""
    assert redact(text) is not None


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("DB_PASSWORD", "password"), ("awsSecretAccessKey", "key"), ("AWS_ACCESS_KEY_ID", "key"), ("x-api-key", "key"),
        ("clientSecret", "object"), ("tls.key", "key"), (".dockerconfigjson", "secret"), ("PASSWORD_HASH", "password"),
        ("userToken2", "token"), ("accessToken", "token"), ("tokenReview", None), ("secretName", None), ("token_type", None),
        ("passwordFile", None), ("primaryKey", None), ("compass", None), ("tokens", None), ("", None), ("existingSecret", None),
    ],
)  # fmt: skip
def test_a_key_is_judged_by_its_last_words(key, kind):
    assert kind == secret_kind(key)


SECRET_OBJECT = '{"kind":"Secret","data":{"config":"ZmFrZQ=="}}'
PRETTY_SECRET_OBJECT = '{\n  "data": {\n    "config": "ZmFrZQ=="\n  },\n  "kind": "Secret"\n}'


@pytest.mark.parametrize("written", [SECRET_OBJECT, PRETTY_SECRET_OBJECT], ids=["compact", "pretty"])
@pytest.mark.parametrize(
    "around",
    [
        "{}", "msg={{foo}} {}", "func() {{ {}", "x {{y}}\n" * 100 + "{}", '{{"items":[{}]}}', '{{"object":{}}}', "{}\n" * 50,
        "[" + "{}," * 50 + "1]", '{{"cut": "' + "x" * 5_000 + "{}",
    ],
)  # fmt: skip
def test_the_data_of_a_secret_object_goes_wherever_it_stands(around, written):
    found = redact(around.format(*[written] * around.count("{}")))
    assert "ZmFrZQ" not in found
    assert '"config"' in found


def test_what_is_too_long_to_be_searched_for_secret_objects_is_not_shown():
    found = redact('{"kind":"Secret", ' * 2_000 + SECRET_OBJECT)
    assert "ZmFrZQ" not in found
    assert found.endswith("[REDACTED:secret]")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tokens: [Xy12kkkkA9, Za88kkkkB7]", "tokens: [[REDACTED:token]]"),
        ("tokens: [prompt, completion]", "tokens: [prompt, completion]"),
        ("got Bearer realm=registry.example", "got Bearer realm=registry.example"),
    ],
)
def test_a_list_of_random_words_is_a_list_of_secrets(text, expected):
    assert expected == redact(text)


def test_the_tail_of_a_key_goes_without_the_lines_before_it():
    line = "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo0NTY3ODkwYWJjZGVmZ2hpamtsbW5v"
    text = f"starting up!\n{line}\n{line}\n-----END RSA PRIVATE KEY-----\nnext"
    assert "starting up!\n[REDACTED:pem]\nnext" == redact(text)


def test_values_of_secret_keys_that_are_no_secrets_stay():
    assert {"password": "none", "auth": "short", "token": None} == redact_json(
        {"password": "none", "auth": "short", "token": None}
    )
