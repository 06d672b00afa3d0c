/* The hook client, compiled: does what fleetctl/hook_client.py does, in a third of its time.

   One table of cases tests both (tests/cli/test_hook_client.py). Half of this is what Python has
   already: bytes that grow, UTF-8, JSON strings. Where a remark is short, the other client has the
   reason. */

#ifdef __APPLE__
#define _DARWIN_C_SOURCE
#else
#define _GNU_SOURCE
#endif

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifdef __APPLE__
#define BELOW_HOME "/Library/Application Support"
#define MONOTONIC CLOCK_UPTIME_RAW /* what Python's time.monotonic reads there */
enum { PEER_LEVEL = 0, PEER_OPTION = 1, PEER_BYTES = 76 };
#else
#define BELOW_HOME "/.local/state"
#define MONOTONIC CLOCK_MONOTONIC
enum { PEER_LEVEL = 1, PEER_OPTION = 17, PEER_BYTES = 12 };
#endif

enum { WAIT_MS = 900, COMPACTION_WAIT_MS = 4000, LAST_MS = 1000, AGAIN_MS = 10 };
enum { LINE_BYTES = 1 << 24, STDIN_BYTES = 1 << 25, SPOOL_BYTES = 16000000, SPOOL_FILES = 1000 };
enum { CHUNK_BYTES = 1 << 16, HEAD_BYTES = 4096, STAMP_LENGTH = 13 };

static const char *const ENV[] = {
    "FLEET_AGENT_ID",    "FLEET_MISSION_ID", "COPILOT_CLI",      "CURSOR_VERSION",
    "FACTORY_PROJECT_DIR", "GEMINI_SESSION_ID", "GROK_HOOK_EVENT", "QWEN_PROJECT_DIR",
};
static const char *const COMPACTIONS[] = {"PreCompact", "preCompact", "PreCompress"};
static const char REPLACEMENT[] = "\xef\xbf\xbd";

#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef struct { /* bytes that grow */
    unsigned char *at;
    size_t size, room;
} Bytes;

/* Return room for so many bytes more, behind those that are there. */
static unsigned char *room(Bytes *bytes, size_t more) {
    if (bytes->room - bytes->size < more) {
        bytes->room = 2 * bytes->size + more;
        bytes->at = realloc(bytes->at, bytes->room);
        if (!bytes->at)
            _exit(0);
    }
    return bytes->at + bytes->size;
}

static void add(Bytes *bytes, const void *what, size_t size) {
    memcpy(room(bytes, size), what, size);
    bytes->size += size;
}

static void add_text(Bytes *bytes, const char *text) {
    add(bytes, text, strlen(text));
}

/* Text. */

/* Return the length of the UTF-8 sequence here; of as much as began like one where it is none. */
static size_t sequence(const unsigned char *at, const unsigned char *end, bool *valid) {
    unsigned char first = *at;
    size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4, have = 1;
    *valid = first < 0x80;
    if (first < 0xc2 || first > 0xf4)
        return 1;
    /* Nothing that fewer bytes say, no surrogates, nothing above U+10FFFF. */
    unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    for (; have < length && at + have < end; have++, low = 0x80, high = 0xbf)
        if (at[have] < low || at[have] > high)
            return have;
    *valid = have == length;
    return have;
}

/* Return whether all of it is UTF-8. */
static bool is_text(const unsigned char *at, const unsigned char *end) {
    bool valid = true;
    while (valid && at < end)
        at += sequence(at, end, &valid);
    return valid;
}

/* Add a character's escape, if JSON wants one. */
static bool escaped(Bytes *bytes, unsigned char c) {
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *found = c ? strchr(plain, c) : NULL;
    char text[8];
    if (found) {
        char pair[] = {'\\', letters[found - plain]};
        add(bytes, pair, sizeof pair);
        return true;
    }
    if (c < 0x20)
        snprintf(text, sizeof text, "\\u%04x", c);
    else
        return false;
    add_text(bytes, text);
    return true;
}

/* Add a JSON string. What is no UTF-8 becomes a mark: one each, or one for every byte. */
static void add_string(Bytes *bytes, const void *what, size_t size, const char *mark, bool each) {
    const unsigned char *at = what, *end = at + size;
    add_text(bytes, "\"");
    while (at < end) {
        const unsigned char *from = at;
        while (at < end && *at >= 0x20 && *at < 0x80 && *at != '"' && *at != '\\')
            at++;
        add(bytes, from, (size_t)(at - from));
        if (at == end)
            break;
        bool valid;
        size_t length = sequence(at, end, &valid);
        if (!valid)
            for (size_t marks = each ? length : 1; marks; marks--)
                add_text(bytes, mark);
        else if (!escaped(bytes, *at))
            add(bytes, at, length);
        at += length;
    }
    add_text(bytes, "\"");
}

/* Read the four digits of an escape; -1 for others. */
static long hexadecimal(const unsigned char *at, const unsigned char *end) {
    long value = 0;
    if (end - at < 4)
        return -1;
    for (const unsigned char *stop = at + 4; at < stop; at++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF";
        const char *digit = *at ? strchr(digits, *at) : NULL;
        if (!digit)
            return -1;
        value = value * 16 + (digit - digits) % 16;
    }
    return value;
}

/* Add a character as UTF-8. */
static void add_character(Bytes *bytes, long c) {
    unsigned char text[4];
    size_t length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    if (c >= 0xd800 && c < 0xe000) { /* half of a pair */
        c = '?';
        length = 1;
    }
    for (size_t left = length; left-- > 1; c >>= 6)
        text[left] = (unsigned char)(0x80 | (c & 0x3f));
    text[0] = (unsigned char)((length == 1 ? 0 : 0xf00 >> length) | c);
    add(bytes, text, length);
}

/* Add what a JSON string says, from behind its first quote on; false if it is none. */
static bool add_said(Bytes *bytes, const unsigned char *at, const unsigned char *end) {
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    while (at < end && *at >= 0x20 && *at != '"') {
        if (*at != '\\') {
            add(bytes, at++, 1);
            continue;
        }
        const char *letter = at + 1 < end && at[1] ? strchr(letters, at[1]) : NULL;
        if (letter) {
            add(bytes, meant + (letter - letters), 1);
            at += 2;
            continue;
        }
        long c = at + 1 < end && at[1] == 'u' ? hexadecimal(at + 2, end) : -1;
        if (c < 0)
            return false;
        at += 6;
        if (c >= 0xd800 && c < 0xdc00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
            long second = hexadecimal(at + 2, end);
            if (second >= 0xdc00 && second < 0xe000) {
                c = 0x10000 + ((c - 0xd800) << 10) + (second - 0xdc00);
                at += 6;
            }
        }
        add_character(bytes, c);
    }
    return at < end && *at == '"';
}

/* What this process was called for, and how it is interrupted. */

static Bytes said, line;
static char name[STAMP_LENGTH + 64], part[sizeof name + 8]; /* <milliseconds>-<delivery id> */
static const char *delivery_id;
static int64_t begun_us;
static char **words;
static volatile sig_atomic_t over; /* too late, or told to end */

static int64_t now_us(clockid_t clock) {
    struct timespec now = {0, 0};
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void alarm_in(int first_ms, int again_ms) {
    struct itimerval timer = {
        {again_ms / 1000, again_ms % 1000 * 1000},
        {first_ms / 1000, first_ms % 1000 * 1000},
    };
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* Say that it is over. The alarm rings on: a call may begin just behind a look at ``over``. */
static void stop(int number) {
    (void)number;
    over = 1;
    alarm_in(AGAIN_MS, AGAIN_MS);
}

/* End while a frame is left behind: what it would come to is not waited for. */
static void give_up(int number) {
    (void)number;
    unlink(part);
    _exit(0);
}

static void on(int number, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler}; /* it interrupts calls: no SA_RESTART */
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
}

/* Make the line for the daemon; what was said is a string in it, whatever it is. */
static void add_line(void) {
    char text[96];
    add_text(&line, "{\"jsonrpc\":\"2.0\",\"method\":\"hook.deliver\",\"params\":{\"delivery_id\":\"");
    add_text(&line, delivery_id);
    add_text(&line, "\",\"harness\":");
    add_string(&line, words[0], strlen(words[0]), "?", true);
    add_text(&line, ",\"args\":[");
    for (char **word = words + 1; *word; word++) {
        add_text(&line, word == words + 1 ? "" : ",");
        add_string(&line, *word, strlen(*word), "?", true);
    }
    add_text(&line, "],\"env\":{");
    const char *between = "\"";
    for (size_t i = 0; i < COUNT(ENV); i++) {
        const char *value = getenv(ENV[i]);
        if (!value || !*value)
            continue;
        add_text(&line, between);
        add_text(&line, ENV[i]);
        add_text(&line, "\":");
        add_string(&line, value, strlen(value), REPLACEMENT, false);
        between = ",\"";
    }
    snprintf(text, sizeof text, "},\"begun_us\":%lld,\"payload\":", (long long)begun_us);
    add_text(&line, text);
    add_string(&line, said.at, said.size, REPLACEMENT, false);
    add_text(&line, "},\"id\":1}\n");
}

/* Places; fleetd.host.paths decides the same. */

/* Return a variable that is an absolute path, else NULL. */
static const char *absolute(const char *variable) {
    const char *value = getenv(variable);
    return value && *value == '/' ? value : NULL;
}

static char *joined(const char *a, const char *b, const char *c) {
    Bytes path = {0};
    add_text(&path, a);
    add_text(&path, b);
    add(&path, c, strlen(c) + 1);
    return (char *)path.at;
}

/* Set the paths of the socket and of the spool; false without a home. */
static bool places(char **at_socket, char **at_spool) {
    const char *home = absolute("HOME"), *state = absolute("XDG_STATE_HOME");
    const char *run = absolute("XDG_RUNTIME_DIR"), *named = getenv("FLEET_SOCKET");
    bool tilde = named && *named == '~';
    struct passwd *own = !home || tilde ? getpwuid(getuid()) : NULL;
    if (!own && (!home || tilde))
        return false;
    if (!home)
        home = own->pw_dir;
    if (!state)
        state = joined(home, BELOW_HOME, "");
    *at_spool = joined(state, "/fleet", "/spool");
    char user[40];
    snprintf(user, sizeof user, "/run/user/%lu", (unsigned long)getuid());
    if (!run)
        run = access(user, W_OK) ? state : user;
    if (!named || !*named) {
        *at_socket = joined(run, "/fleet", "/fleetd.sock");
        return true;
    }
    size_t length = strcspn(named, "/"); /* of ~, or ~ and a user's name */
    if (tilde && length - 1 == strlen(own->pw_name) && !strncmp(named + 1, own->pw_name, length - 1))
        *at_socket = joined(own->pw_dir, named + length, "");
    else
        *at_socket = tilde && length == 1 ? joined(home, named + 1, "") : joined(named, "", "");
    return true;
}

/* The daemon. */

/* Return whether a call is to be made again that something else interrupted. */
static bool again(ssize_t result) {
    return result < 0 && errno == EINTR && !over;
}

/* Return a connection to a daemon of the same user, -1 if there is none in time. */
static int connected(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    uint32_t peer[PEER_BYTES / 4] = {0};
    socklen_t size = PEER_BYTES;
    int result, sock = socket(AF_UNIX, SOCK_STREAM, 0);
    if (strlen(path) >= sizeof address.sun_path)
        return -1;
    memcpy(address.sun_path, path, strlen(path) + 1);
    do
        result = over ? -1 : connect(sock, (struct sockaddr *)&address, sizeof address);
    while (again(result));
    if (result || getsockopt(sock, PEER_LEVEL, PEER_OPTION, peer, &size) || peer[1] != getuid())
        return -1;
    return sock;
}

/* Have the daemon take the line, and print its answer; false if it does not or is foreign. */
static bool exchange(bool can_print) {
    static const char answer_begins[] = "\"stdout\":\"";
    char *path, *spool_path;
    int sock = places(&path, &spool_path) ? connected(path) : -1;
    if (sock < 0 || line.size > LINE_BYTES)
        return false;
    for (size_t sent = 0; sent < line.size;) {
        ssize_t count = over ? -1 : send(sock, line.at + sent, line.size - sent, 0);
        if (count < 0 && !again(count))
            return false;
        sent += count < 0 ? 0 : (size_t)count;
    }
    if (shutdown(sock, SHUT_WR)) /* so that the daemon closes when it has answered */
        return false;
    Bytes reply = {0}, answer = {0};
    while (!reply.size || reply.at[reply.size - 1] != '\n') { /* not until it has closed */
        ssize_t count = over ? -1 : recv(sock, room(&reply, CHUNK_BYTES), CHUNK_BYTES, 0);
        if (count < 0 && !again(count))
            return false;
        if (count == 0)
            break;
        reply.size += count < 0 ? 0 : (size_t)count;
    }
    const unsigned char *end = reply.at + reply.size;
    const unsigned char *at = memmem(reply.at, reply.size, answer_begins, strlen(answer_begins));
    if (!at || !is_text(reply.at, end) || !add_said(&answer, at + strlen(answer_begins), end))
        return false;
    return !over && (!answer.size || !can_print || write(1, answer.at, answer.size) >= 0) && !over;
}

/* The spool. */

/* Go to the spool, which is made where it is not there; false if it cannot be. */
static bool enter_spool(void) {
    char *path, *sock, *next;
    if (!places(&sock, &path) || chdir("/"))
        return false;
    for (next = strtok(path, "/"); next; next = strtok(NULL, "/")) {
        mkdir(next, 0777); /* it is there already, as a rule */
        if (chdir(next))
            return false;
    }
    return true;
}

/* Write the frame; false if it is not there as a whole. */
static bool written(void) {
    int file = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    size_t size = 0;
    while (file >= 0 && size < line.size) {
        ssize_t count = write(file, line.at + size, line.size - size);
        if (count < 0)
            return close(file), false;
        size += (size_t)count;
    }
    char whole[sizeof part];
    snprintf(whole, sizeof whole, "%s.json", name);
    return file >= 0 && !close(file) && !rename(part, whole);
}

/* Remove the oldest, so that the spool keeps to its limits. */
static void prune(void) {
    struct dirent **files;
    int64_t size = 0;
    for (int count = scandir(".", &files, NULL, alphasort), kept = 0; count-- > 0;) {
        const char *file = files[count]->d_name;
        struct stat info;
        if (!strcmp(file, ".") || !strcmp(file, "..") || lstat(file, &info))
            continue;
        kept++;
        size += info.st_size;
        if (strncmp(file, name, strlen(name)) && (kept > SPOOL_FILES || size > SPOOL_BYTES))
            unlink(file);
    }
}

/* Spool what was said, and let nothing but the last alarm interrupt it. */
static void leave(void) {
    sigset_t all;
    for (char **word = words; *word; word++)
        if (!strcmp(*word, "no-spool"))
            return;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    on(SIGALRM, SIG_IGN); /* forgets one that waits */
    on(SIGALRM, give_up);
    alarm_in(LAST_MS, 0);
    sigdelset(&all, SIGALRM);
    sigprocmask(SIG_SETMASK, &all, NULL);
    if (!line.size)
        add_line();
    umask(077);
    if (!enter_spool())
        return;
    if (written() || !unlink(part)) /* half a file is of no use, and keeps room from others */
        prune();
}

/* The whole. */

/* Return whether this comes before a compaction: a word, or a text in the head of the payload. */
static bool before_compaction(void) {
    const unsigned char *at = said.at;
    const unsigned char *end = at + (said.size < HEAD_BYTES ? said.size : HEAD_BYTES);
    for (size_t i = 0; i < COUNT(COMPACTIONS); i++) {
        size_t length = strlen(COMPACTIONS[i]);
        for (char **word = words; *word; word++)
            if (!strcmp(*word, COMPACTIONS[i]))
                return true;
        for (const unsigned char *from = at; from <= end;) {
            const unsigned char *quote = memchr(from, '"', (size_t)(end - from));
            const unsigned char *to = quote ? quote : end;
            if ((size_t)(to - from) == length && !memcmp(from, COMPACTIONS[i], length))
                return true;
            from = to + 1;
        }
    }
    return false;
}

/* Read stdin to its end; false if it cannot be, or not in time. */
static bool heard(void) {
    static unsigned char unwanted[CHUNK_BYTES];
    room(&said, CHUNK_BYTES); /* also where nothing is said */
    while (!over) {
        bool wanted = said.size < STDIN_BYTES; /* what is left unread would stop its writer */
        ssize_t count = read(0, wanted ? room(&said, CHUNK_BYTES) : unwanted, CHUNK_BYTES);
        if (count == 0)
            return !over;
        if (count < 0 && !again(count))
            return false;
        said.size += count > 0 && wanted ? (size_t)count : 0;
        if (said.size == (size_t)count && before_compaction()) /* the first */
            alarm_in(COMPACTION_WAIT_MS, AGAIN_MS);
    }
    return false;
}

int main(int count, char **arguments) {
    static char *generic[] = {"generic", NULL};
    static const int ENDS[] = {SIGALRM, SIGTERM, SIGHUP, SIGINT};
    unsigned char random[16];
    sigset_t alarms;
    bool can_print = fcntl(1, F_GETFD) >= 0; /* else descriptor 1 is the socket */

    begun_us = now_us(MONOTONIC);
    words = count > 1 ? arguments + 1 : generic;
    if (getentropy(random, sizeof random))
        return 0;
    snprintf(name, sizeof name, "%013lld-", (long long)(now_us(CLOCK_REALTIME) / 1000));
    delivery_id = name + strlen(name);
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(name + strlen(name), 3, "%02x", random[i]);
    snprintf(part, sizeof part, "%s.part", name);

    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < COUNT(ENDS); i++)
        on(ENDS[i], stop);
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &alarms, NULL);
    alarm_in(WAIT_MS, AGAIN_MS);

    bool all = heard() && said.size < LINE_BYTES;
    if (all)
        add_line();
    if (!all || !exchange(can_print))
        leave();
    _exit(0);
}
