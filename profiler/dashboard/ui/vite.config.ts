import { defineConfig } from 'vite'

// File names have no hash: the program serves them by name, and browsers check for a newer file at each load.
export default defineConfig({
  base: './', // a proxy may serve the page below a path
  worker: { format: 'es', rollupOptions: { output: { entryFileNames: '[name].js' } } },
  build: {
    outDir: 'dist',
    target: 'es2022',
    modulePreload: false,
    cssCodeSplit: false,
    rollupOptions: {
      output: { entryFileNames: 'app.js', chunkFileNames: '[name].js', assetFileNames: 'app.[ext]' },
    },
  },
})
