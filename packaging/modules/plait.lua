-- SPDX-License-Identifier: Apache-2.0
-- Lmod: copy it to MODULEPATH/plait/VERSION.lua, once for each version that
-- `./configure --prefix=/opt/plait/VERSION` was given; edit `prefix` where
-- yours is another.
help([[Plait: tensor, pipeline and data parallelism as flags of srun, and a
trainer. `plait --help`, man plait.]])
whatis("Name: Plait")
whatis("Version: " .. myModuleVersion())
whatis("Description: planner and trainer for parallel jobs under Slurm")

local prefix = "/opt/plait/" .. myModuleVersion()
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))
prepend_path("LD_LIBRARY_PATH", pathJoin(prefix, "lib"))
prepend_path("PKG_CONFIG_PATH", pathJoin(prefix, "lib/pkgconfig"))
prepend_path("XDG_DATA_DIRS", pathJoin(prefix, "share"))
prepend_path("FPATH", pathJoin(prefix, "share/zsh/site-functions"))
