// The messages come from the .proto files of this repository: they are packed as they are.
import { cpSync, existsSync, mkdirSync } from "node:fs";

const from = new URL("../../proto/cloche/v1/", import.meta.url), to = new URL("proto/cloche/v1/", import.meta.url);
if (existsSync(from)) { // else this is a package that has them
    mkdirSync(to, { recursive: true });
    cpSync(from, to, { recursive: true });
    cpSync(new URL("../status.proto", import.meta.url), new URL("proto/status.proto", import.meta.url));
}
