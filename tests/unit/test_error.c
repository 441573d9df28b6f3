/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "tap.h"
#include "topology/base/error.h"

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
    return done_testing();
}
