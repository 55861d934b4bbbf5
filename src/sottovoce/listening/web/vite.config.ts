import { defineConfig } from "vitest/config";

export default defineConfig({
  // The page may be served under any path, behind any proxy.
  base: "./",
  build: {
    target: "es2022",
    outDir: "../page",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rolldownOptions: {
      output: {
        entryFileNames: "app.js",
        assetFileNames: "app[extname]",
        codeSplitting: false,
      },
    },
  },
  test: { environment: "jsdom", include: ["tests/**/*.test.ts"] },
});
