/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tap.h"
#include "topology/base/capture.h"
#include "topology/base/error.h"

/* In a program that has inherited that SIGCHLD is ignored. */
static void check_capture(void)
{
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)"echo said; exit 3",
                    NULL};
    char *text;
    size_t size;
    int status = 0;

    signal(SIGCHLD, SIG_IGN);
    text = plait_capture(argv, 0, 60, &size, &status);
    ok(text && strcmp(text, "said\n") == 0 && WIFEXITED(status) &&
           WEXITSTATUS(status) == 3,
       "what a command prints, and its exit status: %d", status);
    free(text);
}

int main(void)
{
    struct plait_error err;
    char big[1024];

    errno = ENOENT;
    ok(plait_errorf(&err, "%s:%d", "a", 7) == -1, "returns -1");
    ok(strcmp(err.text, "a:7") == 0, "formats");
    ok(errno == ENOENT, "keeps errno");
    ok(plait_errorf(NULL, "x") == -1, "takes NULL");
    memset(big, 'x', sizeof(big));
    big[sizeof(big) - 1] = '\0';
    plait_errorf(&err, "%s", big);
    ok(strlen(err.text) == sizeof(err.text) - 1, "cuts what is too long");
    check_capture();
    return done_testing();
}
