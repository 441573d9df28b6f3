/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into ranks. INJECT="RANK CALL N ACTION [MS]": what happens to that
 * rank at its Nth call of CALL, or N milliseconds after its start where CALL is
 * "time". ACTION: an errno, with which the call fails; "kill"; "stop", for MS
 * milliseconds; or "sleep" for so long. The file INJECT_MARK is made then.
 *
 * Only calls of the program itself count: what a library makes of a failing
 * malloc is not ours to judge. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern char **environ;

static char call_wanted[32] = "", action[16] = "";
static long at, ms;
static atomic_long calls;

static void wait_ms(long n)
{
    struct timespec t = {n / 1000, n % 1000 * 1000000};

    while (nanosleep(&t, &t) < 0 && errno == EINTR)
        ;
}

static void mark(void)
{
    const char *path = getenv("INJECT_MARK");

    if (path)
        close(creat(path, 0600));
}

static void hit(pid_t rank)
{
    mark();
    if (!strcmp(action, "kill"))
        kill(rank, SIGKILL);
    if (!strcmp(action, "stop")) {
        kill(rank, SIGSTOP);
        close_range(0, ~0U, 0);
        wait_ms(ms);
        kill(rank, SIGCONT);
    }
    _exit(0);
}

/* From a process of its own, as a rank that is stopped cannot go on by itself.
 * It closes all inherited descriptors except `held` (-1: none): a pipe or a
 * lock that it kept open would outlast the rank. */
static void hit_beside(long after, int held)
{
    pid_t rank = getpid();

    if (fork() != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (held > 0)
        close_range(0, held - 1, 0);
    close_range(held + 1, ~0U, 0);
    wait_ms(after);
    if (getppid() == rank)
        hit(rank);
    _exit(0);
}

/* At a call: the rank does not go on before it is hit, or it could end before
 * that. It reads the end of a pipe whose other end the process beside it closes
 * after the signal. */
static void hit_here(void)
{
    int ends[2];
    char none;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return;
    hit_beside(0, ends[1]);
    close(ends[1]);
    while (read(ends[0], &none, 1) < 0 && errno == EINTR)
        ;
    close(ends[0]);
}

static int act(void)
{
    int error = atoi(action);

    if (error || !strcmp(action, "sleep"))
        mark();
    if (error) {
        errno = error;
        return 1;
    }
    if (!strcmp(action, "sleep"))
        wait_ms(ms);
    else
        hit_here();
    return 0;
}

static int is_ours(const void *caller)
{
    const char *name;
    Dl_info info;

    if (!dladdr(caller, &info) || !info.dli_fname)
        return 0;
    name = strrchr(info.dli_fname, '/');
    return strstr(name ? name : info.dli_fname, "plait") != NULL;
}

static int fails(const char *call, const void *caller)
{
    if (!action[0] || strcmp(call, call_wanted) != 0 || !is_ours(caller) ||
        atomic_fetch_add(&calls, 1) + 1 != at)
        return 0;
    return act();
}

__attribute__((constructor)) static void begin(void)
{
    const char *text = getenv("INJECT"), *rank = getenv("PLAIT_RANK");
    char does[16];
    long whose;

    if (!rank)
        rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!text || !strstr(program_invocation_short_name, "plait-") ||
        sscanf(text, "%ld %31s %ld %15s %ld", &whose, call_wanted, &at, does,
               &ms) < 4 ||
        whose != (rank ? atol(rank) : 0))
        return;
    memcpy(action, does, sizeof(action));
    if (!strcmp(call_wanted, "time") && !strcmp(action, "sleep"))
        act();
    else if (!strcmp(call_wanted, "time"))
        hit_beside(at, -1);
}

#define CALLER __builtin_return_address(0)
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define CALL(type, name, bad, parameters, arguments)              \
    type name parameters                                          \
    {                                                             \
        return fails(#name, CALLER) ? bad : REAL(name) arguments; \
    }

CALL(ssize_t, read, -1, (int fd, void *to, size_t n), (fd, to, n))
CALL(ssize_t, write, -1, (int fd, const void *from, size_t n), (fd, from, n))
CALL(int, fsync, -1, (int fd), (fd))
CALL(int, rename, -1, (const char *from, const char *to), (from, to))
CALL(void *, mmap, MAP_FAILED,
     (void *a, size_t n, int prot, int flags, int fd, off_t off),
     (a, n, prot, flags, fd, off))
CALL(int, socket, -1, (int domain, int type, int protocol),
     (domain, type, protocol))
CALL(ssize_t, getrandom, -1, (void *to, size_t n, unsigned flags),
     (to, n, flags))
CALL(int, pthread_create, errno,
     (pthread_t * thread, const pthread_attr_t *attr, void *(*run)(void *),
      void *arg),
     (thread, attr, run, arg))

void *malloc(size_t size)
{
    return fails("malloc", CALLER) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return fails("calloc", CALLER) ? NULL : __libc_calloc(n, size);
}

int open(const char *path, int flags, ...)
{
    mode_t mode;
    va_list ap;

    va_start(ap, flags);
    mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    return fails("open", CALLER) ? -1 : REAL(open)(path, flags, mode);
}
