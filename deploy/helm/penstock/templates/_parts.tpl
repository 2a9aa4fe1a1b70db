{{- /* The configuration, with the names of the Service and the Ingress among the hosts of the API. */}}
{{- define "penstock.config" }}
{{- $hosts := append (index .Values.config.http "hosts" | default list) .Release.Name }}
{{- with .Release.Namespace }}
{{- $hosts = append $hosts (printf "%s.%s" $.Release.Name .) }}
{{- $hosts = append $hosts (printf "%s.%s.svc" $.Release.Name .) }}
{{- end }}
{{- if .Values.ingress.enabled }}{{ $hosts = append $hosts .Values.ingress.host }}{{ end }}
{{- $http := merge (dict "hosts" $hosts) .Values.config.http }}
{{- toYaml (merge (dict "http" $http) .Values.config) }}
{{- end }}

{{- /* Ports of an admitter by name: the API's, and those of the listeners in the configuration. */}}
{{- define "penstock.ports" }}
http: 8080
{{- range index .Values.config "outbound" }}
proxy-{{ regexFind "[0-9]+$" .listen }}: {{ regexFind "[0-9]+$" .listen }}
{{- end }}
{{- with index .Values.config "envoy" }}{{ with index . "listen" }}
grpc: {{ regexFind "[0-9]+$" . }}
{{- end }}{{ end }}
{{- end }}

{{- /* Any address, except for link-local ones, where clouds serve credentials. */}}
{{- define "penstock.anywhere" }}
- to:
    - {namespaceSelector: {}}
    - {ipBlock: {cidr: 0.0.0.0/0, except: [169.254.0.0/16]}}
    - {ipBlock: {cidr: "::/0", except: ["fe80::/10", "fd00:ec2::/32", "fd20:ce::/32"]}}
{{- end }}

{{- /* What every pod has: the fields of the values that Kubernetes knows by the same names, if set. */}}
{{- define "penstock.pod" }}
{{- range $field := list "imagePullSecrets" "serviceAccountName" "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- with index $ $field }}
{{ $field }}: {{ toJson . }}
{{- end }}
{{- end }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext: {runAsNonRoot: true, runAsUser: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
{{- end }}

{{- /* What every container has. */}}
{{- define "penstock.container" }}
image: {{ .image.repository }}:{{ .image.tag }}
securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
env:
  - {name: PENSTOCK_NATS_URL, valueFrom: {secretKeyRef: {name: {{ .secret }}, key: nats-url}}}
  {{- with .extraEnv }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}
