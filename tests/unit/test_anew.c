/* SPDX-License-Identifier: Apache-2.0 */
/* A process of an elastic run begins anew: its second life reads what the first
 * has left, and reports. */
#define _GNU_SOURCE
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "runtime/comm/members.h"
#include "runtime/train/anew.h"
#include "runtime/train/carry.h"
#include "runtime/train/watchdog/signals.h"
#include "tap.h"
#include "temp_path.h"

enum { SIZE = 3, BYTES = 3000000, USERS = 90 };

static const char text[] = "train: {steps: 3}\n";

/* -- the first life -------------------------------------------------------- */

static struct plait_members *make_members(void)
{
    struct plait_members *m = calloc(1, sizeof(*m));
    int port = 0;

    m->listener = plait_rendezvous_listen(&port);
    m->self = m->rank = 1;
    m->size = SIZE;
    m->n = 2;
    m->epoch = 77;
    m->before = 66;
    m->all = calloc(SIZE, sizeof(*m->all));
    m->present = calloc(SIZE, sizeof(*m->present));
    m->order = calloc(SIZE, sizeof(*m->order));
    m->ids = calloc(SIZE, sizeof(*m->ids));
    m->newest = calloc(SIZE, sizeof(*m->newest));
    m->out = calloc(SIZE, sizeof(*m->out));
    m->all[1].port = port;
    strcpy(m->all[2].host, "node7");
    m->present[1] = m->order[0] = 2;
    m->ids[2] = 5;
    m->newest[2] = 6;
    m->out[0] = true;
    strcpy(m->secret, "secret");
    return m;
}

static void add_copy(struct plait_copies *copies, int value, bool whole)
{
    char *image = malloc(BYTES);

    memset(image, value, BYTES);
    plait_copies_add(copies, image, BYTES)->whole = whole;
}

static void fill_elastic(struct plait_elastic *e)
{
    memset(e, 0, sizeof(*e));
    e->config_text = strdup(text);
    e->run = 12345;
    e->reached = 41;
    e->lives = 2;
    e->n = 2;
    e->members = calloc(SIZE, sizeof(*e->members));
    e->silent = calloc(SIZE, sizeof(*e->silent));
    e->members[1] = 2;
    e->silent[2] = true;
    e->copies = plait_copies_create();
    add_copy(e->copies, 1, true);
    add_copy(e->copies, 2, false);
    add_copy(e->copies, 3, true);
}

/* A descriptor of a locked file without a name, as a claim has. */
static int lock_file(char *path)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = mkostemp(temp_path(path, "anew"), O_CLOEXEC);

    return fcntl(fd, F_OFD_SETLK, &whole) == 0 ? fd : -1;
}

/* Whether it fails, with a line and nothing left of it, where it must. */
static bool fails(char **argv, int fd)
{
    struct rlimit none, before;
    struct plait_error err = {""};
    bool refused;

    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = 3;
    setrlimit(RLIMIT_NOFILE, &none);
    refused = plait_anew(argv, fd, NULL, 0, &err) < 0 && err.text[0];
    setrlimit(RLIMIT_NOFILE, &before);
    return refused && !getenv("PLAIT_ANEW");
}

static void *wait_for_ever(void *arg)
{
    while (!arg)
        pause();
    return NULL;
}

/* To the process: the thread that does not hold it back gets it. Returns when
 * it waits for this one. */
static void send(int number)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    sigset_t pending;

    kill(getpid(), number);
    do {
        nanosleep(&moment, NULL);
        sigpending(&pending);
    } while (!sigismember(&pending, number));
}

/* As a library may. */
static void leave_cores(void)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof(one), &one);
}

static int count_cores(void)
{
    cpu_set_t cores;

    return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores)
                                                            : -1;
}

static int live(char **argv)
{
    static char path[TEMP_PATH], numbers[100];
    char *again[] = {argv[0], path, numbers, NULL};
    struct plait_members *m = make_members();
    struct plait_error err = {""};
    struct plait_elastic e;
    pthread_t other;
    int fd, open_file = dup(2), keep[2], cores = count_cores();
    bool failed;

    fill_elastic(&e);
    plait_signals_install();
    raise(SIGTERM); /* has come, and must not be forgotten */
    pthread_create(&other, NULL, wait_for_ever, NULL);
    plait_signals_hold(true);
    fd = plait_carry_write(&e, m, &err);
    e.held[e.nheld++] = lock_file(path);
    failed = fails(again, fd);
    snprintf(numbers, sizeof(numbers), "%d %d %d %d %d", (int)getpid(),
             open_file, failed, e.copies->first == NULL, cores);
    plait_carry_finish(fd, &e, &err);
    send(SIGUSR1); /* comes in between */
    leave_cores();
    keep[0] = m->listener;
    keep[1] = e.held[0];
    plait_anew(again, fd, keep, 2, &err);
    ok(0, "the process begins anew: %s", err.text);
    return done_testing();
}

/* -- the second ------------------------------------------------------------ */

static bool is_filled(const struct plait_copy *copy, char value)
{
    if (!copy || !copy->whole || copy->size != BYTES)
        return false;
    for (int i = 0; i < BYTES; i++)
        if (copy->image[i] != value)
            return false;
    return true;
}

static void check_elastic(const struct plait_elastic *e)
{
    ok(e->run == 12345 && e->reached == 41 && e->lives == 2 && e->n == 2 &&
           e->members[1] == 2 && !e->silent[1] && e->silent[2] &&
           strcmp(e->config_text, text) == 0,
       "what it knows of the run");
    ok(is_filled(e->copies->first, 1) && is_filled(e->copies->first->next, 3) &&
           !e->copies->first->next->next,
       "its copies in memory, the complete ones");
}

static void check_members(const struct plait_members *m)
{
    ok(m->self == 1 && m->rank == 1 && m->size == SIZE && m->n == 2 &&
           m->epoch == 77 && m->before == 66 &&
           strcmp(m->all[2].host, "node7") == 0 && m->present[1] == 2 &&
           m->order[0] == 2 && m->ids[2] == 5 && m->newest[2] == 6 &&
           m->out[0] && !m->out[1] && strcmp(m->secret, "secret") == 0,
       "who it is, and who the others are");
    ok(plait_rendezvous_reach("localhost", m->all[1].port, 1) >= 0,
       "it listens where the others know it");
    ok(fcntl(m->listener, F_GETFD) & FD_CLOEXEC,
       "what it starts does not get that port");
}

static void check_lock(const char *path, int held)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = open(path, O_RDWR | O_CLOEXEC);
    bool denied = fcntl(fd, F_OFD_SETLK, &whole) < 0;

    close(held);
    ok(denied && fcntl(fd, F_OFD_SETLK, &whole) == 0,
       "the lock holds until it is let go");
    close(fd);
    unlink(path);
}

static void check_strange_file(void)
{
    struct plait_members *m;
    struct plait_elastic e;
    struct plait_error err = {""};

    ok(plait_carry_read(open("/dev/null", O_RDONLY | O_CLOEXEC), &e, &m, &err) <
               0 &&
           strstr(err.text, "PLAIT_ANEW"),
       "a file of others is refused: %s", err.text);
}

static int live_again(char **argv, int fd)
{
    int pid = 0, open_file = -1, refused = 0, freed = 0, cores = 0;
    struct plait_error err = {""};
    struct plait_members *m;
    struct plait_elastic e;
    char name[16] = "";

    sscanf(argv[2], "%d %d %d %d %d", &pid, &open_file, &refused, &freed,
           &cores);
    prctl(PR_GET_NAME, name);
    ok(pid == getpid() && strncmp(program_invocation_short_name, name, 15) == 0,
       "the same process, of the same name");
    ok(refused, "where a process cannot begin anew it goes on");
    ok(freed, "its first life has freed the copies");
    ok(!getenv("PLAIT_ANEW") && plait_anew_file() < 0,
       "what it starts does not take itself for a second life");
    ok(fcntl(open_file, F_GETFD) < 0, "other files are closed");
    ok(fcntl(USERS, F_GETFD) == 0, "those that the user has opened are not");
    ok(count_cores() == cores, "it may use all %d cores again", cores);
    plait_signals_install();
    ok(plait_signals_caught() == SIGUSR1,
       "a signal that came in between, to another thread");
    if (!ok(plait_carry_read(fd, &e, &m, &err) == 0, "it reads its file: %s",
            err.text))
        return done_testing();
    ok(plait_signals_caught() == SIGTERM, "a signal that came before");
    ok(fcntl(fd, F_GETFD) < 0, "the file is gone");
    check_elastic(&e);
    check_members(m);
    check_lock(argv[1], e.held[0]);
    check_strange_file();
    plait_copies_destroy(e.copies);
    free(e.config_text);
    free(e.members);
    free(e.silent);
    plait_members_destroy(m);
    return done_testing();
}

int main(int argc, char **argv)
{
    int fd;

    if (argc == 1)
        dup2(STDERR_FILENO, USERS); /* as the shell does for 90>FILE */
    fd = plait_anew_file();
    return argc == 3 && fd >= 0 ? live_again(argv, fd) : live(argv);
}
