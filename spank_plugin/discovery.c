/* SPDX-License-Identifier: Apache-2.0 */
#include "spank_plugin/discovery.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/spank.h>

#include "topology/node/cache.h"

static void report_failure(const char *why)
{
    slurm_error("plait: cannot cache this node's topology: %s; every step with "
                "plait's flags has to discover it",
                why);
}

static void write_cache(const struct plait_plugstack *plugstack)
{
    struct plait_error err;
    int rc = plait_node_refresh_cache(plugstack->cache,
                                      plugstack->discovery_seconds, &err);

    if (rc < 0)
        report_failure(err.text);
    else if (rc > 0)
        slurm_info("plait: wrote this node's topology into %s",
                   plugstack->cache);
}

/* Nothing here may delay slurmd's start or leave it a child process: the child
 * ends at once, and the grandchild, which discovers the node, is adopted by
 * init. */
void plait_discovery_start_node(const struct plait_plugstack *plugstack)
{
    struct plait_error err;
    sigset_t alarm_only;
    pid_t pid;

    if (!plugstack->cache ||
        plait_node_check_cache(plugstack->cache, &err) == 0)
        return;
    if (plait_node_prepare_cache(plugstack->cache, &err) < 0) {
        report_failure(err.text);
        return;
    }
    pid = fork();
    if (pid == 0) {
        if (fork() == 0) {
            /* Another thread of slurmd may have held the log's lock during the
             * fork, and this process would wait for it forever: SIGALRM ends
             * it. */
            signal(SIGALRM, SIG_DFL);
            sigemptyset(&alarm_only);
            sigaddset(&alarm_only, SIGALRM);
            sigprocmask(SIG_UNBLOCK, &alarm_only, NULL);
            alarm((unsigned)plugstack->discovery_seconds + 10);
            write_cache(plugstack);
        }
        _exit(0);
    }
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

void plait_discovery_start_step(struct plait_discovery *discovery)
{
    const struct plait_plugstack *plugstack = discovery->plugstack;
    struct plait_error err;

    if (!plugstack->cache ||
        plait_node_refresh_cache(plugstack->cache, plugstack->discovery_seconds,
                                 &err) >= 0)
        return;
    if (errno == ETIMEDOUT)
        discovery->hung = err;
    slurm_info("plait: cannot cache this node's topology: %s", err.text);
}

struct plait_node *plait_discovery_find(const struct plait_discovery *discovery,
                                        struct plait_error *err)
{
    const struct plait_plugstack *plugstack = discovery->plugstack;
    struct plait_node *node = NULL;
    struct plait_error why;

    if (discovery->hung.text[0]) {
        *err = discovery->hung;
        return NULL;
    }
    if (plugstack->cache &&
        !(node = plait_node_load_cache(plugstack->cache, &why)))
        slurm_info("plait: %s; discovering the topology anew", why.text);
    return node ? node : plait_node_discover(plugstack->discovery_seconds, err);
}
