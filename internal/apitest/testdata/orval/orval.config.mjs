export default {
  penstock: {
    input: process.env.DESCRIPTION,
    output: {
      target: "./api.ts",
      client: "fetch",
      override: { mutator: { path: "./fetch.ts", name: "call", extension: ".ts" } },
    },
  },
};
