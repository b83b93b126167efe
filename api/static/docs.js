// The operations of the HTTP API, by Swagger UI, from the openapi.json of the process that serves this page.

import { get, token } from "./source.js";

const said = document.querySelector("#said");
const dark = matchMedia("(prefers-color-scheme: dark)");

function colour() {
  document.documentElement.classList.toggle("dark-mode", dark.matches);
}

function withToken(request) {
  if (token.get() && !request.headers.Authorization) request.headers.Authorization = `Bearer ${token.get()}`;
  return request;
}

// Each part in a landmark, headings without a gap, and no link in a button; one server is no choice.
function accessible({ React: { createElement: element } }) {
  const named = (label) => (Original) => (props) => element("section", { "aria-label": label }, element(Original, props));
  const headed = (Original) => (props) => [element("h2", { key: "head", className: "unseen" }, "Operations"), element(Original, { key: "all", ...props })];
  return {
    components: { ServersContainer: () => null, DeepLink: ({ text }) => element("span", null, text) },
    wrapComponents: { InfoContainer: named("About the API"), AuthorizeBtnContainer: named("Login"), operations: headed },
  };
}

function show(spec) {
  said.textContent = "";
  // Below the path of this page: a proxy may serve it there.
  const servers = [{ url: new URL(".", location.href).pathname.replace(/\/$/, "") || "/" }];
  SwaggerUIBundle({
    spec: { ...spec, servers }, dom_id: "#viewer", deepLinking: true, docExpansion: "list", defaultModelsExpandDepth: 0,
    requestInterceptor: withToken, plugins: [accessible],
    validatorUrl: null, // it would send the address of this process to a foreign host
  });
}

function refuse(error) {
  const isLogin = error.status === 401;
  said.textContent = isLogin ? "A token is needed. Give it to " : `The API cannot be described: ${error.message} `;
  if (!isLogin) return;
  const page = Object.assign(document.createElement("a"), { href: "./", textContent: "the page" });
  said.append(page, " in this tab, and come back.");
}

dark.addEventListener("change", colour);
colour();
get("openapi.json").then(show, refuse);
