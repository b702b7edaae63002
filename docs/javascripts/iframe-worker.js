// Search in pages that were opened as files: browsers start no worker from file://, so its script runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      const load = (source) =>
        new Promise((done, failed) => {
          const script = inside.document.createElement("script");
          script.onload = done;
          script.onerror = failed;
          script.src = source;
          inside.document.body.append(script);
        });
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...sources) => Promise.all(sources.map(load));
      this.ready = load(url);
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
