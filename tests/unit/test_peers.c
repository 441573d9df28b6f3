/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/comm/peers.h"
#include "tap.h"

enum { CHILDREN = 5 };

static _Atomic int who;

static void gone(void *arg, int i)
{
    (void)arg;
    who = i;
}

static void nap(int ms)
{
    poll(NULL, 0, ms);
}

static int said(int want)
{
    for (int ms = 0; ms < 10000 && who == -1; ms += 20)
        nap(20);
    return who == want;
}

static void start_children(pid_t pid[CHILDREN])
{
    for (int i = 0; i < CHILDREN; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            pause();
            _exit(0);
        }
    }
}

static void end_children(const pid_t pid[CHILDREN])
{
    for (int i = 0; i < CHILDREN; i++)
        kill(pid[i], SIGKILL);
    while (wait(NULL) > 0 || errno == EINTR)
        ;
}

int main(void)
{
    struct plait_peers *p;
    pid_t pid[CHILDREN];

    start_children(pid);
    who = -1;
    p = plait_peers_create(pid, CHILDREN);
    if (!p && errno == ENOSYS) {
        end_children(pid);
        return skip_all("pidfd_open(2) is not there");
    }
    ok(p && plait_peers_watch(p, gone, NULL) == 0,
       "five processes are watched");
    nap(100);
    ok(who == -1, "nothing is said while they live");
    kill(pid[3], SIGKILL);
    ok(said(3), "the one that is killed is named, even unburied: %d", who);
    ok(plait_peers_ended(p, 3, 0), "it has ended");
    ok(!plait_peers_ended(p, 2, 10), "another has not");
    plait_peers_destroy(p);
    who = -1;
    p = plait_peers_create(pid, 3);
    ok(p && plait_peers_watch(p, gone, NULL) == 0, "three are watched");
    plait_peers_kill(p);
    ok(plait_peers_ended(p, 0, 10000) && plait_peers_ended(p, 1, 10000) &&
           plait_peers_ended(p, 2, 10000),
       "and killed, all of them");
    plait_peers_destroy(p);
    p = plait_peers_create(pid + 4, 1);
    ok(p && plait_peers_watch(p, gone, NULL) == 0, "one is watched");
    plait_peers_destroy(p);
    who = -1;
    kill(pid[4], SIGKILL);
    nap(100);
    ok(who == -1, "nothing is said once nobody watches");
    end_children(pid);
    p = plait_peers_create(pid, 1);
    ok(!p && errno == ESRCH, "one that has ended already");
    p = plait_peers_create(NULL, 0);
    ok(p != NULL, "nobody to watch");
    plait_peers_destroy(p);
    return done_testing();
}
